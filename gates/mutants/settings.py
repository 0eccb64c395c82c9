"""Mistakes in how settings and extreme ratios are handled."""

from gates.mutants.planting import in_numpy, in_trainer

ACT, EXTREME = ("loss.settings-act",), ("loss.extreme-ratios-stay-numbers",)

in_numpy(
    "settings.upper-clip-is-the-lower",
    "numpy_loss:_bounds",
    "settings:one_epsilon",
    mistake="one ε bounds the ratio on both sides, and the other is read and dropped",
    arises="a second argument added to the configuration before it was added to the loss",
    caught_by=ACT,
)
in_numpy(
    "settings.kl-ratio-ignored",
    "numpy_loss:kl_term",
    "settings:kl_without_ratio",
    mistake="nothing multiplies the KL, whatever was asked for",
    arises="a keyword that is swallowed by **kwargs",
    caught_by=ACT,
)
in_numpy(
    "settings.first-call-decides",
    "numpy_loss:dr_grpo_denominator",
    "settings:remembered",
    mistake="the denominator of the first call is kept for later ones, whatever L_max they bring",
    arises="functools.cache on a function of shapes",
    caught_by=ACT,
)
in_numpy(
    "extremes.clamped-log-ratio",
    "numpy_ratio:token_ratio",
    "settings:clamped",
    mistake="log-ratios are clamped to [-20, 20], so an overflow looks like a step",
    arises="a guard against inf that nobody was told of",
    caught_by=EXTREME,
)
in_trainer(
    "extremes.inf-times-zero",
    "algorithms.ratio:select",
    "settings:where_multiplies",
    mistake="masked slots of a row whose ratio overflows get a NaN gradient",
    source="MLX 0.32: the gradient of mx.where is the cotangent times the mask, and inf · 0 is NaN",
    caught_by=EXTREME,
)
