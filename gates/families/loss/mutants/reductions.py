"""Mutations that show where one loss should be another."""

from gates.families.hosts import in_numpy

GATE = ("loss.reductions.hold",)

in_numpy(
    "reductions.delta-has-a-default",
    "loss:policy_loss",
    "loss.patches.baseline:default_delta",
    mistake="without δ, a default of 1.5 bounds the ratio",
    arises="a numeric default that a caller cannot switch off",
    theme="configuration",
    symptom=(
        "With negative advantages, large ratios are bounded at 1.5 although no bound is set; clip fractions do not "
        "show it."
    ),
    caught_by=GATE,
)
in_numpy(
    "reductions.beta-zero-is-the-default",
    "loss:policy_loss",
    "loss.patches.baseline:zero_is_unset",
    mistake="β = 0 counts as missing and is replaced by the default of 0.04",
    arises="`beta or DEFAULT`",
    theme="configuration",
    symptom=(
        "A run without KL stays close to the reference and pays for a second forward pass; its reward stalls early."
    ),
    caught_by=GATE,
)
in_numpy(
    "reductions.weights-without-their-mean",
    "loss:policy_loss",
    "loss.patches.baseline:weights_divided",
    mistake="off-policy weights are divided by their sum, which no aggregation defines",
    arises="self-normalised importance sampling on top of a mean over rows",
    theme="ratio and rollout",
    symptom="The step size falls with the number of rows or tokens.",
    caught_by=GATE,
)
in_numpy(
    "reductions.one-micro-batch-counts-rows",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="the token mean of a micro-batch is computed as the mean of its row means",
    arises="one flag, `mean`, for both bnpo and grpo",
    theme="normalisation",
    symptom=(
        "Length bias: tokens of long completions weigh less, and the curve is that of the sequence mean, not of the "
        "token mean."
    ),
    caught_by=GATE,
)
