"""Mutations of how settings and extreme ratios are handled."""

from gates.families.hosts import in_numpy, in_trainer

ACT, EXTREME = ("loss.settings-act",), ("loss.extreme-ratios-stay-numbers",)

in_numpy(
    "settings.upper-clip-is-the-lower",
    "loss:policy_loss",
    "loss.patches.edits:one_width",
    mistake="one ε bounds the ratio on both sides, and the other is read and dropped",
    arises="a second argument added to the configuration before it was added to the loss",
    theme="configuration",
    symptom="Clip-higher changes nothing: entropy collapses as it does with one epsilon.",
    caught_by=ACT,
)
in_numpy(
    "settings.kl-ratio-ignored",
    "loss:policy_loss",
    "loss.patches.edits:kl_without_ratio",
    mistake="nothing multiplies the KL, whatever was asked for",
    arises="a keyword that is swallowed by **kwargs",
    theme="KL",
    symptom="Nothing on-policy; with several updates a rollout the KL to the reference grows faster than beta allows.",
    caught_by=ACT,
)
in_numpy(
    "settings.first-call-decides",
    "loss:dr_grpo_denominator",
    "loss.patches.baseline:remembered",
    mistake="the denominator of the first call is kept for later ones, whatever L_max they bring",
    arises="functools.cache on a function of shapes",
    theme="configuration",
    symptom="The effective learning rate is set by the first batch; changing L_max in a running process has no effect.",
    caught_by=ACT,
)
in_numpy(
    "extremes.clamped-log-ratio",
    "ratio:token_ratio",
    "loss.patches.baseline:clamped",
    mistake="log-ratios are clamped to [-20, 20], so an overflow looks like a step",
    arises="a guard against inf that nobody was told of",
    theme="ratio and rollout",
    symptom="A policy that has run away looks calm: ratios stop at 5e8 and the loss stays finite while samples are nonsense.",
    at="robustness",
    caught_by=EXTREME,
)
in_trainer(
    "extremes.inf-times-zero",
    "algorithms.ratio:select",
    "loss.patches.trainer:where_multiplies",
    mistake="masked slots of a row whose ratio overflows get a NaN gradient",
    source="MLX 0.32: the gradient of mx.where is the cotangent times the mask, and inf · 0 is NaN",
    theme="precision",
    symptom="One NaN gradient after many good steps, always with a long completion in the batch; the adapter is NaN from then on.",
    caught_by=EXTREME,
)
in_trainer(
    "extremes.held-token-of-an-infinite-row",
    "algorithms.gmpo:hold",
    "loss.patches.trainer:held_by_where",
    mistake="a token that GMPO's clip holds gets a NaN gradient when another token makes its row's ratio overflow",
    source="MLX 0.32: the gradient of mx.where is the cotangent times the mask, and inf · 0 is NaN; found here by `gates calibrate` at seed 7",
    theme="precision",
    symptom="One NaN gradient after many good steps, only where a clipped and a runaway token meet in one completion.",
    caught_by=EXTREME,
)
