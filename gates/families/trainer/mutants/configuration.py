"""Mutations between a configuration and its run."""

from gates.families.hosts import in_trainer

in_trainer(
    "config.betas-not-passed-on",
    "engine.optimizer:make",
    "trainer.patches.configuration:own_betas",
    mistake="the optimizer is created with its default betas instead of the configured ones",
    arises="Adam(learning_rate) without the other settings",
    theme="configuration",
    symptom="The curve looks normal, but it is that of other betas; a sweep over the betas is flat.",
    caught_by=("trainer.configuration-applies",),
)
in_trainer(
    "config.gradient-never-clipped",
    "engine.step:clipped",
    "trainer.patches.configuration:unclipped",
    mistake="the gradient norm is computed and reported, but the gradient is not clipped",
    arises="MLX's clip_grad_norm returns a new tree, and the result is dropped",
    theme="configuration",
    symptom=(
        "The logged norm sometimes exceeds the bound by far, and the reward takes long to recover from such a step."
    ),
    caught_by=("trainer.configuration-applies",),
)
in_trainer(
    "config.loss-scale-not-undone",
    "engine.step:loss_and_grad",
    "trainer.patches.configuration:scaled_now_and_then",
    mistake="in every 13th step the gradient keeps its loss scale of 1024",
    arises="unscaling inside a branch that is not always executed",
    theme="precision",
    symptom="Rare spikes of the gradient norm by a fixed power of two, each followed by a drop of the reward.",
    caught_by=("trainer.no-spikes",),
)
in_trainer(
    "config.old-of-the-base-now-and-then",
    "logprobs:of_policy",
    "trainer.patches.configuration:base_now_and_then",
    mistake="in every 19th batch the old log-probs are those of the base model, because the adapters are still off",
    arises="a reference pass that fails or returns early before switching the adapters on again",
    source="Alibaba-Quark/SSP#13: old log-probs of other weights",
    theme="ratio and rollout",
    symptom="The KL to the old policy jumps by orders of magnitude for single steps; the reward hardly moves.",
    caught_by=("trainer.no-spikes",),
)
in_trainer(
    "config.scored-at-one",
    "logprobs:scored",
    "trainer.patches.configuration:untempered",
    mistake="tokens are drawn at the configured temperature and scored at 1",
    arises="log_softmax(logits), while samples come from softmax(logits / temperature)",
    theme="configuration",
    symptom=(
        "The curve is that of another temperature: entropy falls too fast, and ratios are wrong from the first step."
    ),
    caught_by=("trainer.scores-at-the-temperature-of-sampling",),
)
