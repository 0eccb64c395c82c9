"""Mistakes that show where one loss should be another."""

from gates.mutants.planting import in_numpy

GATE = ("loss.reductions.hold",)

in_numpy(
    "reductions.delta-has-a-default",
    "numpy_loss:policy_loss",
    "reductions:default_delta",
    mistake="without δ a default of 1.5 bounds the ratio",
    arises="a keyword whose default is a number, and a caller that cannot say none",
    caught_by=GATE,
)
in_numpy(
    "reductions.beta-zero-is-the-default",
    "numpy_loss:policy_loss",
    "reductions:zero_is_unset",
    mistake="β = 0 counts as not given, and the default of 0.04 pulls at the policy",
    arises="`beta or DEFAULT`",
    caught_by=GATE,
)
in_numpy(
    "reductions.weights-without-their-mean",
    "numpy_loss:policy_loss",
    "reductions:weights_divided",
    mistake="off-policy weights are divided by their sum, which is right for nobody's denominator",
    arises="self-normalised importance sampling on top of a mean over rows",
    caught_by=GATE,
)
in_numpy(
    "reductions.one-micro-batch-counts-rows",
    "numpy_loss:policy_loss",
    "reductions:micro_batches_of_rows",
    mistake="the token mean of a micro-batch is a mean of its rows' means",
    arises="bnpo and grpo behind one flag, which says `mean`",
    caught_by=GATE,
)
