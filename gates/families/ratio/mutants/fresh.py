"""Mutations of importance ratios and recorded log-probs."""

from gates.families.hosts import in_trainer

in_trainer(
    "ratio.constant",
    "algorithms.ratio:token",
    "loss.patches.trainer:constant_ratio",
    mistake="the ratio is always 1, for any old log-probs",
    source=(
        "mlx-lm-lora 5.10.2: its ratio is 1, and epsilon 1e-4 and 10 give the same gradient; "
        "inclusionAI/AReno#68: ratio is 1, clip inert"
    ),
    theme="ratio and rollout",
    symptom="The clip fraction is always 0, and the curve is the same for every epsilon.",
    caught_by=("ratio.fresh-batch-is-one", "loss.grpo.matches-definition"),
)
in_trainer(
    "ratio.cached-positions-off-by-one",
    "rollout.batched:_prefill",
    "ratio.trainer_patches:late_positions",
    mistake="after the prefill, positions of the cached decode are off by one",
    arises="an offset that includes the padding or the current token",
    source="unslothai/unsloth#3795: positions count the padding",
    theme="ratio and rollout",
    symptom=(
        "The ratio of a fresh batch scatters around 1, more for late tokens; samples are slightly worse than the model's."
    ),
    caught_by=("ratio.cached-decode.within-bound", "rollout.batched.equals-naive"),
)
