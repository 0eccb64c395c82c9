"""Mutations of importance ratios, off-policy corrections and their statistics."""

from gates.families.hosts import in_numpy, in_trainer

RATIO, WEIGHTS, STATISTICS = "ratio.matches-definition", "weights.matches-definition", "statistics.match-definition"

in_numpy(
    "ratios.swapped",
    "ratio:importance_ratio",
    "ratio.patches:swapped_pair",
    mistake="the ratio is inverted: old / policy instead of policy / old",
    arises="exp(old − policy), a sign error",
    theme="ratio and rollout",
    symptom=(
        "The clip acts on the wrong side: tokens that became likelier are pushed further, and the KL diverges after some updates."
    ),
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.sum-for-mean",
    "ratio:importance_ratio",
    "ratio.patches:sum_for_mean",
    mistake="the sequence ratio is the product of the token ratios instead of their geometric mean",
    arises="GSPO's length normalisation forgotten",
    source="walkinglabs/hands-on-modern-rl#75: ratio of summed log-probs",
    theme="ratio and rollout",
    symptom="Ratios of long rows are huge or 0: most rows are clipped and the gradient norm is erratic.",
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.padded-mean",
    "ratio:sequence_ratio",
    "ratio.patches:padded_mean",
    mistake="the mean covers the padded width instead of the tokens",
    arises="`.mean(-1)` of a masked difference",
    source="d2l-ai/d2l-en#2076: masked values, mean over the axis",
    theme="normalisation",
    symptom=("A row's ratio moves towards 1 in a batch with a longer row; clip fractions depend on the batch."),
    caught_by=(RATIO, "loss.gspo.matches-definition"),
)
in_numpy(
    "ratios.clamped-difference",
    "terms:exponential",
    "ratio.patches:clamped_difference",
    mistake="log-ratios are clamped to ±1 before exp, silently",
    arises="a clamp against overflow, as in verl's compute_policy_loss (±20)",
    theme="precision",
    symptom="No effect until a step is large; then extreme ratios look harmless in the metrics and in the loss.",
    caught_by=(RATIO, STATISTICS),
)
in_numpy(
    "ratios.float32-difference",
    "terms:difference",
    "ratio.patches:float32_difference",
    mistake="log-probs are subtracted in float32, without compensation of the rounding",
    arises="a subtraction in the dtype of the log-probs",
    theme="precision",
    symptom="No curve shows it: ratios of a fresh batch are 1 within 1e-6 instead of exactly.",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "ratios.rounded-difference",
    "terms:difference",
    "ratio.patches:rounded_difference",
    mistake="the rounding error of the float64 difference is not compensated",
    arises="exp(policy − old) implemented literally",
    theme="precision",
    symptom="No curve shows it: the last digits of extreme ratios are wrong.",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "weights.exclusive-bounds",
    "ratio:importance_weights",
    "ratio.patches:exclusive_bounds",
    mistake="MIS drops ratios exactly at its bounds",
    arises="`(r > low) & (r < high)`",
    theme="ratio and rollout",
    symptom="No curve shows it, unless ratios pile up on the bound.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.lower-bound-ignored",
    "ratio:importance_weights",
    "ratio.patches:lower_bound_ignored",
    mistake="c_min is not applied: every correction is one-sided",
    arises="TRL's first TIS had an upper cap only",
    source="huggingface/trl#5413: inline clamp ignores the lower bound",
    theme="configuration",
    symptom="Few curves show it: tokens that are unlikely for the trainer get a weight near 0 instead of c_min.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.lower-bound-invented",
    "ratio:importance_weights",
    "ratio.patches:lower_bound_invented",
    mistake="without c_min, 1 / c_max is used as the lower bound",
    arises="an interval assumed to be symmetric in log space",
    theme="ratio and rollout",
    symptom="Samples that are unlikely for the trainer get a wrong weight: a small bias on stale data.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.tis-for-mis",
    "ratio:importance_weights",
    "ratio.patches:clamp_for_mask",
    mistake="ratios outside MIS's interval are clamped instead of dropped",
    arises="a mode that is accepted without an implementation",
    theme="configuration",
    symptom=(
        "Rows that should be dropped still train with the cap's weight; slow drift when sampler and trainer disagree."
    ),
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.unrecorded-is-impossible",
    "ratio:recorded",
    "ratio.patches:unrecorded_is_impossible",
    mistake="an unrecorded sampling log-prob counts as −inf, so that its weight is infinite",
    arises="nan_to_num with the smallest float",
    theme="ratio and rollout",
    symptom="Weights at the cap, or inf, wherever the engine gave no log-prob; the loss spikes on those rows.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.unrecorded-is-certain",
    "ratio:recorded",
    "ratio.patches:unrecorded_is_certain",
    mistake="an unrecorded sampling log-prob counts as 0, a probability of one",
    arises="nan_to_num with its default",
    source="pytorch/rl#4255: missing log-probs invented as 0",
    theme="ratio and rollout",
    symptom="Weights near 0 wherever the engine gave no log-prob: those tokens silently stop training.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.mean-of-sequence",
    "ratio:importance_weights",
    "ratio.patches:swapped_levels",
    mistake="token weights and sequence weights are exchanged",
    arises="one configuration key for two levels",
    theme="configuration",
    symptom=(
        "The correction acts on rows instead of tokens, so that one bad token drops or caps a whole answer, or the "
        "other way round."
    ),
    caught_by=(WEIGHTS,),
)
in_numpy(
    "statistics.k3-reversed",
    "ratio:ratio_statistics",
    "ratio.patches:reversed_mismatch",
    mistake="k3 of −D instead of D",
    arises="the helper for the reference KL called with the ratio's arguments",
    theme="metrics",
    symptom="The mismatch curve has the right scale but the wrong tail: rare catastrophic tokens are invisible.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.nearest-rank",
    "ratio:quantile",
    "ratio.patches:nearest_rank",
    mistake="p99 is the nearest rank instead of the interpolated quantile",
    arises="sorted(x)[int(0.99 * n)]",
    theme="metrics",
    symptom="The p99 curve moves in steps and is too high for small batches.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.population-quantile",
    "ratio:quantile",
    "ratio.patches:population_quantile",
    mistake="p99 interpolates around 0.99·n instead of 0.99·(n − 1)",
    arises="another of the nine usual definitions of a quantile",
    theme="metrics",
    symptom="The p99 curve is a little too low, most for small batches.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clamped-ess",
    "ratio:effective_share",
    "ratio.patches:clamped_ess",
    mistake="the effective sample size is computed from clamped ratios",
    arises="the ratio overwritten by its clipped value",
    theme="metrics",
    symptom="The effective sample size stays near 1 although the rollout is stale.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.chi2-without-minus-one",
    "ratio:ratio_statistics",
    "ratio.patches:second_moment",
    mistake="χ² is the mean of r² instead of r² − 1",
    arises="the second moment reported under χ²'s name",
    theme="metrics",
    symptom="The chi-squared curve starts at 1 instead of 0.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.outside-for-clipped",
    "ratio:shares",
    "ratio.patches:outside_for_clipped",
    mistake="the clip fraction counts all ratios outside the range, for both signs of the advantage",
    arises="`(r < low) | (r > high)` called the clip fraction",
    source="huggingface/trl#3175: clip fraction ignores advantage's sign",
    theme="metrics",
    symptom="The clip fraction is too high, because tokens outside the range are counted even if they are not clipped.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clipped-signs-swapped",
    "ratio:shares",
    "ratio.patches:clipped_signs_swapped",
    mistake="clipped ratios are counted on the wrong side: low for A > 0, high for A < 0",
    arises="the sign condition of the clip inverted",
    source=(
        "huggingface/trl#3144: clip fraction counts unclipped side; huggingface/trl#3032: is_clipped compares "
        "the wrong way"
    ),
    theme="metrics",
    symptom=(
        "The clip fraction counts unclipped tokens outside the range: it is high while few tokens are clipped, and "
        "near 0 while many are."
    ),
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.padding-counts",
    "ratio:ratio_statistics",
    "ratio.patches:padding_counts",
    mistake="padding enters the statistics as ratios of 1",
    arises="means over (B, T) of masked differences",
    source=(
        "huggingface/trl#6803: statistics include padding; PrimeIntellect-ai/prime-rl#1329: count ignores the loss mask"
    ),
    theme="metrics",
    symptom="All ratio statistics look healthier in ragged batches and depend on the amount of padding.",
    caught_by=(STATISTICS,),
)
in_trainer(
    "statistics.trainer-reversed",
    "metrics.ratios:statistics",
    "ratio.trainer_patches:reverse_the_ratio",
    mistake="the trainer's ratio metrics are inverted: old / new instead of new / old",
    arises="old − new, as some KL estimators take it",
    theme="metrics",
    symptom="Ratio statistics are those of the inverse: min and max are exchanged, and the KL has the other tail.",
    caught_by=(STATISTICS,),
)
