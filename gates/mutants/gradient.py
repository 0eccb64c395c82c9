"""Mistakes between logits and loss."""

from gates.mutants.planting import in_trainer

in_trainer(
    "gradient.mask-shifted-by-one",
    "logprobs:completion_slots",
    "shifted_by_one",
    mistake="`[:, :-1]` where `[:, 1:]` is right: each token is scored by the logits that have already seen it",
    arises="the classic shift of labels against logits",
    caught_by=("loss.prompt-gets-no-gradient",),
)
