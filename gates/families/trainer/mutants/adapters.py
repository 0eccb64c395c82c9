"""Mutations of the training step."""

from gates.families.hosts import in_trainer

in_trainer(
    "trainer.forward-outside-value-and-grad",
    "engine.step:loss_and_grad",
    "trainer.patches.step:forward_outside",
    mistake="the forward pass runs before value_and_grad, so that the gradient is zero",
    arises="log-probs computed once and captured by the loss closure",
    theme="lost gradients",
    symptom="The loss looks right, the gradient norm is 0 and the weights never move.",
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.base-trains-too",
    "lora:freeze",
    "trainer.patches.step:everything_trains",
    mistake="the norms of the base model are trainable too",
    arises="unfreeze() called on a block instead of its adapter",
    theme="lost gradients",
    symptom=(
        "Reward rises as usual, but the saved adapters do not reproduce it: part of the learning is in the base model."
    ),
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.reference-with-adapters",
    "lora:adapters_off",
    "trainer.patches.step:adapters_stay_on",
    mistake="the reference pass runs with the adapters on, so that the KL is always 0",
    arises="a context manager that scales a copy of the adapters",
    theme="KL",
    symptom="The KL is always exactly 0, and beta has no effect.",
    caught_by=("trainer.adapters-off-is-base",),
)
in_trainer(
    "trainer.dora-stays-on",
    "lora:to_switch_off",
    "trainer.patches.adapters:dora_stays_on",
    mistake="the reference pass switches LoRA off and leaves DoRA on",
    source="mlx-lm 0.32's remove_lora_layers takes off LoRALinear and nothing else",
    theme="KL",
    symptom="With DoRA the KL is always exactly 0, and beta has no effect.",
    caught_by=("trainer.adapters-off-is-base",),
)
in_trainer(
    "trainer.experts-stay-on",
    "lora:to_switch_off",
    "trainer.patches.adapters:experts_stay_on",
    mistake="the reference pass leaves the experts' adapters on",
    source="mlx-lm 0.32's remove_lora_layers takes off LoRALinear and nothing else",
    theme="KL",
    symptom="With adapters on experts the KL is too small: changes of the experts cost nothing.",
    caught_by=("trainer.adapters-off-is-base",),
)
in_trainer(
    "trainer.embeddings-stay-on",
    "lora:to_switch_off",
    "trainer.patches.adapters:embeddings_stay_on",
    mistake="the reference pass leaves the adapter of the embedding, and of a tied head, on",
    arises="a search for adapters in the blocks only",
    theme="KL",
    symptom="With an adapted embedding the KL is too small: changes of the head cost nothing.",
    caught_by=("trainer.adapters-off-is-base",),
)
in_trainer(
    "trainer.dora-magnitudes-stay-on",
    "lora:adapters_off",
    "trainer.patches.adapters:scaled_to_zero",
    mistake="adapters are switched off by a scale of 0, so DoRA's magnitudes stay",
    arises="a switch that suffices for LoRA",
    theme="KL",
    symptom="With DoRA the KL is too small and does not start at 0 after a resume.",
    caught_by=("trainer.adapters-off-is-base",),
)
in_trainer(
    "trainer.experts-never-train",
    "lora:freeze",
    "trainer.patches.adapters:experts_frozen",
    mistake="the experts' adapters are frozen with the base",
    arises="unfreezing modules of type LoRALinear only",
    source=(
        "unslothai/unsloth-zoo#606: expert LoRA gets no gradient; unslothai/unsloth-zoo#909: routed experts "
        "silently untrained"
    ),
    theme="lost gradients",
    symptom="The loss looks healthy but reward rises slowly: most parameters of a mixture never move.",
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.dora-magnitudes-never-train",
    "adapters.layers:leaves",
    "trainer.patches.adapters:magnitudes_forgotten",
    mistake="DoRA's magnitudes are frozen with the base",
    arises="unfreezing by the names lora_a and lora_b only",
    theme="lost gradients",
    symptom="No curve shows it: DoRA learns what LoRA learns.",
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.linear-attention-not-found",
    "lora:find",
    "trainer.patches.adapters:attention_and_mlp_only",
    mistake="linear attention gets no adapter: a hybrid model trains a quarter of its layers",
    arises="a list of target modules written for dense models",
    source="agentscope-ai/TuFT#149: LoRA map skips DeltaNet layers",
    theme="lost gradients",
    symptom=(
        "The loss looks healthy but reward rises slowly: three of four layers of a hybrid have no adapter on their "
        "attention."
    ),
    caught_by=("trainer.only-adapters-train",),
)
in_trainer(
    "trainer.checkpoint-captures-its-parameters",
    "checkpointing:recomputed",
    "trainer.patches.adapters:captured_parameters",
    mistake=(
        "a checkpointed block captures its parameters instead of taking them as inputs, so that its adapters get no "
        "gradient"
    ),
    arises="mx.checkpoint(layer) where mlx-lm passes trainable_parameters()",
    source=(
        "microsoft/LoRA#120: checkpointing leaves LoRA without gradient; locuslab/open-unlearning#178: "
        "checkpointed layers not trained"
    ),
    theme="lost gradients",
    symptom="With checkpointing on, the gradient norm is lower or 0 and adapters in checkpointed blocks never move.",
    caught_by=("trainer.checkpointing.same-step",),
)
