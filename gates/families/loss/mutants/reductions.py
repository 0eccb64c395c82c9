"""Mutations that show where one loss should be another."""

from gates.families.hosts import in_numpy

GATE = ("loss.reductions.hold",)

in_numpy(
    "reductions.delta-has-a-default",
    "loss:policy_loss",
    "loss.patches.baseline:default_delta",
    mistake="without δ a default of 1.5 bounds the ratio",
    arises="a keyword whose default is a number, and a caller that cannot say none",
    theme="configuration",
    symptom="With negative advantages large ratios stop growing at 1.5 although no bound was asked for; clip fractions say nothing.",
    caught_by=GATE,
)
in_numpy(
    "reductions.beta-zero-is-the-default",
    "loss:policy_loss",
    "loss.patches.baseline:zero_is_unset",
    mistake="β = 0 counts as not given, and the default of 0.04 pulls at the policy",
    arises="`beta or DEFAULT`",
    theme="configuration",
    symptom="A run without KL stays close to the reference and costs a second forward; its reward stalls early.",
    caught_by=GATE,
)
in_numpy(
    "reductions.weights-without-their-mean",
    "loss:policy_loss",
    "loss.patches.baseline:weights_divided",
    mistake="off-policy weights are divided by their sum, which is right for nobody's denominator",
    arises="self-normalised importance sampling on top of a mean over rows",
    theme="ratio and rollout",
    symptom="The step size falls with the number of rows or tokens; stale batches move the policy less than fresh ones by chance.",
    caught_by=GATE,
)
in_numpy(
    "reductions.one-micro-batch-counts-rows",
    "loss:policy_loss",
    "loss.patches.edits:row_mean",
    mistake="the token mean of a micro-batch is a mean of its rows' means",
    arises="bnpo and grpo behind one flag, which says `mean`",
    theme="normalisation",
    symptom="Length bias: tokens of long completions weigh less, and the curve is that of the sequence mean, not of the token mean.",
    caught_by=GATE,
)
