"""Mutations between a configuration and its run."""

from gates.families.hosts import in_trainer

in_trainer(
    "config.betas-not-passed-on",
    "engine.optimizer:make",
    "trainer.patches.configuration:own_betas",
    mistake="the optimizer is made with its own betas, whatever the configuration says",
    arises="Adam(learning_rate), and the rest of the section left out",
    theme="configuration",
    symptom="Nothing to see: the curve is that of other betas, and a sweep over them is flat.",
    caught_by=("trainer.configuration-applies",),
)
in_trainer(
    "config.gradient-never-clipped",
    "engine.step:clipped",
    "trainer.patches.configuration:unclipped",
    mistake="the gradient's norm is measured and reported, and the gradient is not clipped",
    arises="clip_grad_norm returns a new tree in MLX, and its result is dropped",
    theme="configuration",
    symptom="The logged norm is far above the bound now and then, followed by a step from which the reward takes long to recover.",
    caught_by=("trainer.configuration-applies",),
)
in_trainer(
    "config.loss-scale-not-undone",
    "engine.step:loss_and_grad",
    "trainer.patches.configuration:scaled_now_and_then",
    mistake="every 13th gradient keeps its loss scale of 1024",
    arises="unscaling inside a branch that a skipped step does not take",
    theme="precision",
    symptom="Rare spikes of the gradient norm by a fixed power of two, each with a fall of the reward.",
    caught_by=("trainer.no-spikes",),
)
in_trainer(
    "config.old-of-the-base-now-and-then",
    "logprobs:of_policy",
    "trainer.patches.configuration:base_now_and_then",
    mistake="the old log-probs of every 19th batch are the base's: the adapters are still off",
    arises="a reference pass that raised, or returned early, between switching the adapters off and on",
    source="Alibaba-Quark/SSP#13: old log-probs of other weights",
    theme="ratio and rollout",
    symptom="The KL to the old policy jumps by orders of magnitude at one step and is back at the next; the reward hardly moves.",
    caught_by=("trainer.no-spikes",),
)
in_trainer(
    "config.scored-at-one",
    "logprobs:scored",
    "trainer.patches.configuration:untempered",
    mistake="tokens are drawn at the configured temperature and scored at 1",
    arises="log_softmax(logits) where log_softmax(logits / temperature) was sampled from",
    theme="configuration",
    symptom="The curve is that of another temperature: entropy falls faster than it should, ratios are off from the first step.",
    caught_by=("trainer.scores-at-the-temperature-of-sampling",),
)
