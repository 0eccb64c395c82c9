"""Mutations of importance ratios, off-policy corrections and their statistics."""

from gates.families.hosts import in_numpy, in_trainer

RATIO, WEIGHTS, STATISTICS = "ratio.matches-definition", "weights.matches-definition", "statistics.match-definition"

in_numpy(
    "ratios.swapped",
    "ratio:importance_ratio",
    "ratio.patches:swapped_pair",
    mistake="the ratio is old over policy",
    arises="exp(old − policy): the sign of the difference",
    theme="ratio and rollout",
    symptom=(
        "The clip acts on the wrong side: tokens that gained are pushed on, and the KL runs away after some updates."
    ),
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.sum-for-mean",
    "ratio:importance_ratio",
    "ratio.patches:sum_for_mean",
    mistake="the sequence's ratio is the product where the geometric mean was asked for",
    arises="GSPO's length normalisation forgotten",
    source="walkinglabs/hands-on-modern-rl#75: ratio of summed log-probs",
    theme="ratio and rollout",
    symptom="Ratios of long rows are astronomic or 0: most rows are clipped and the gradient norm is erratic.",
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.padded-mean",
    "ratio:sequence_ratio",
    "ratio.patches:padded_mean",
    mistake="the mean runs over the padded width instead of the tokens",
    arises="`.mean(-1)` of a masked difference",
    source="d2l-ai/d2l-en#2076: masked values, mean over the axis",
    theme="normalisation",
    symptom=(
        "A row's ratio moves towards 1 when a longer neighbour joins its batch; clip fractions depend on the batch."
    ),
    caught_by=(RATIO, "loss.gspo.matches-definition"),
)
in_numpy(
    "ratios.clamped-difference",
    "terms:exponential",
    "ratio.patches:clamped_difference",
    mistake="log-ratios are clamped to ±1 before exp, silently",
    arises="a clamp against overflow, as in verl's compute_policy_loss (±20)",
    theme="precision",
    symptom="Nothing until a step goes far: then extreme ratios look harmless in the metrics and in the loss.",
    caught_by=(RATIO, STATISTICS),
)
in_numpy(
    "ratios.float32-difference",
    "terms:difference",
    "ratio.patches:float32_difference",
    mistake="log-probs are subtracted in float32 and the rounding is forgotten",
    arises="a subtraction in the dtype of the log-probs",
    theme="precision",
    symptom="Nothing in any curve: ratios of a fresh batch are 1 within 1e-6 instead of exactly.",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "ratios.rounded-difference",
    "terms:difference",
    "ratio.patches:rounded_difference",
    mistake="what the rounding of a float64 difference lost is forgotten",
    arises="exp(policy − old) as it is written",
    theme="precision",
    symptom="Nothing in any curve: the last digits of extreme ratios are wrong.",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "weights.exclusive-bounds",
    "ratio:importance_weights",
    "ratio.patches:exclusive_bounds",
    mistake="MIS drops a ratio that is exactly its bound",
    arises="`(r > low) & (r < high)`",
    theme="ratio and rollout",
    symptom="Nothing in any curve, unless ratios pile up on the bound.",
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
    symptom="Nothing in most curves: tokens that the trainer finds unlikely get a weight near 0 instead of c_min.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.lower-bound-invented",
    "ratio:importance_weights",
    "ratio.patches:lower_bound_invented",
    mistake="without c_min the lower bound is 1 / c_max",
    arises="a symmetric interval assumed in log space",
    theme="ratio and rollout",
    symptom="Samples that the trainer finds unlikely keep a weight they should lose: a small bias on stale data.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.tis-for-mis",
    "ratio:importance_weights",
    "ratio.patches:clamp_for_mask",
    mistake="ratios outside MIS's interval are clamped instead of dropped",
    arises="the mode's name read, its branch not written",
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
    mistake="a sampling log-prob that was not recorded counts as −inf, so its weight is infinite",
    arises="nan_to_num with the lowest number",
    theme="ratio and rollout",
    symptom="Weights at the cap, or inf, wherever the engine gave no log-prob; the loss spikes on those rows.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.unrecorded-is-certain",
    "ratio:recorded",
    "ratio.patches:unrecorded_is_certain",
    mistake="a sampling log-prob that was not recorded counts as 0, probability one",
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
    mistake="token weights are given where the sequence's were asked for, and the other way round",
    arises="one configuration key for two levels",
    theme="configuration",
    symptom="The correction acts on rows where tokens were meant: one bad token drops or caps a whole answer.",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "statistics.k3-reversed",
    "ratio:ratio_statistics",
    "ratio.patches:reversed_mismatch",
    mistake="k3 of −D: the estimate of the other direction",
    arises="the reference-KL helper called with the ratio's arguments",
    theme="metrics",
    symptom="The mismatch curve has the right size and the wrong tail: rare catastrophic tokens do not show.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.nearest-rank",
    "ratio:quantile",
    "ratio.patches:nearest_rank",
    mistake="p99 is the nearest rank instead of an interpolation",
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
    arises="another of the nine definitions of a quantile",
    theme="metrics",
    symptom="The p99 curve is a little too low, most for small batches.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clamped-ess",
    "ratio:effective_share",
    "ratio.patches:clamped_ess",
    mistake="the effective sample size is that of clamped ratios, which look healthier",
    arises="the ratio variable overwritten by its clip",
    theme="metrics",
    symptom="The effective sample size stays near 1 while the rollout is stale: no warning comes.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.chi2-without-minus-one",
    "ratio:ratio_statistics",
    "ratio.patches:second_moment",
    mistake="χ² is the mean of r², not of r² − 1",
    arises="the second moment reported under χ²'s name",
    theme="metrics",
    symptom="The chi-squared curve starts at 1 instead of 0.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.outside-for-clipped",
    "ratio:shares",
    "ratio.patches:outside_for_clipped",
    mistake="the clip fraction counts ratios outside the range whatever the advantage",
    arises="`(r < low) | (r > high)` called the clip fraction",
    source="huggingface/trl#3175: clip fraction ignores advantage's sign",
    theme="metrics",
    symptom="The clip fraction is too high, by the tokens that the clip leaves alone.",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clipped-signs-swapped",
    "ratio:shares",
    "ratio.patches:clipped_signs_swapped",
    mistake="the low clip is counted where A > 0 and the high where A < 0",
    arises="the sides that a clip leaves alone, counted as those that it stops",
    source=(
        "huggingface/trl#3144: clip fraction counts unclipped side; huggingface/trl#3032: is_clipped compares "
        "the wrong way"
    ),
    theme="metrics",
    symptom="The clip fraction counts what is free: high while little is clipped, near 0 while much is.",
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
    symptom="All ratio statistics look healthier in ragged batches and move with the amount of padding.",
    caught_by=(STATISTICS,),
)
in_trainer(
    "statistics.trainer-reversed",
    "metrics.ratios:statistics",
    "ratio.trainer_patches:reverse_the_ratio",
    mistake="the trainer's metrics are of the old policy against the new one",
    arises="old − new, as some KL estimators take it",
    theme="metrics",
    symptom="Ratio statistics are those of the inverse: min and max change places, the KL has the other tail.",
    caught_by=(STATISTICS,),
)
