"""Mistakes in the training step."""

from gates.mutants.planting import in_trainer

in_trainer(
    "trainer.forward-outside-value-and-grad",
    "loop:loss_and_grad",
    "forward_outside",
    mistake="the forward pass runs before value_and_grad: the loss looks right and the gradient is zero",
    arises="log-probs computed once and captured by the loss closure",
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.base-trains-too",
    "lora:freeze",
    "everything_trains",
    mistake="the base's norms are trainable besides the adapters",
    arises="unfreeze() on a block instead of its adapter",
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.reference-with-adapters",
    "lora:adapters_off",
    "adapters_stay_on",
    mistake="the reference pass runs with the adapters on, so the KL is zero for ever",
    arises="a context manager that scales a copy of the adapters",
    caught_by=("trainer.adapters-off-is-base",),
)
