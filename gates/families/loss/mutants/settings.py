"""Mutations of how settings and extreme ratios are handled."""

from gates.families.hosts import in_numpy, in_trainer

ACT, EXTREME = ("loss.settings-act",), ("loss.extreme-ratios-stay-numbers",)

in_numpy(
    "settings.upper-clip-is-the-lower",
    "loss:policy_loss",
    "loss.patches.edits:one_width",
    mistake="one ε bounds the ratio on both sides, and the other is ignored",
    arises="a second argument added to the configuration but not to the loss",
    theme="configuration",
    symptom="Clip-higher has no effect: entropy collapses as with one epsilon.",
    caught_by=ACT,
)
in_numpy(
    "settings.kl-ratio-ignored",
    "loss:policy_loss",
    "loss.patches.edits:kl_without_ratio",
    mistake="the KL is never multiplied by the ratio, for any setting",
    arises="a keyword that is swallowed by **kwargs",
    theme="KL",
    symptom=(
        "No effect on-policy; with several updates per rollout the KL to the reference grows faster than expected for "
        "this beta."
    ),
    caught_by=ACT,
)
in_numpy(
    "settings.first-call-decides",
    "loss:dr_grpo_denominator",
    "loss.patches.baseline:remembered",
    mistake="the denominator of the first call is reused for later calls with another L_max",
    arises="functools.cache on a function of shapes",
    theme="configuration",
    symptom="The effective learning rate is set by the first batch; changing L_max in a running process has no effect.",
    caught_by=ACT,
)
in_numpy(
    "extremes.clamped-log-ratio",
    "ratio:token_ratio",
    "loss.patches.baseline:clamped",
    mistake="log-ratios are clamped to [-20, 20], so that an overflow looks like an ordinary step",
    arises="an undocumented guard against inf",
    theme="ratio and rollout",
    symptom="A diverged policy looks healthy: ratios stop at 5e8 and the loss stays finite while samples are nonsense.",
    at="hardening",
    caught_by=EXTREME,
)
in_trainer(
    "extremes.inf-times-zero",
    "algorithms.ratio:select",
    "loss.patches.trainer:where_multiplies",
    mistake="masked slots of a row whose ratio overflows get a NaN gradient",
    source="MLX 0.32: the gradient of mx.where is the cotangent times the mask, and inf · 0 is NaN",
    theme="precision",
    symptom=(
        "One NaN gradient after many good steps, always with a long completion in the batch; the adapter is NaN from "
        "then on."
    ),
    at="hardening",
    caught_by=EXTREME,
)
in_trainer(
    "extremes.held-token-of-an-infinite-row",
    "algorithms.gmpo:hold",
    "loss.patches.trainer:held_by_where",
    mistake="a token clipped by GMPO gets a NaN gradient when another token makes its row's ratio overflow",
    source=(
        "MLX 0.32: the gradient of mx.where is the cotangent times the mask, and inf · 0 is NaN; found here by `gates "
        "calibrate` at seed 7"
    ),
    theme="precision",
    symptom="One NaN gradient after many good steps, only if a completion has both a clipped and an overflowing token.",
    at="hardening",
    caught_by=EXTREME,
)
