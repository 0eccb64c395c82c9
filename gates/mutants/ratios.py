"""Mistakes in importance ratios, off-policy corrections and their statistics."""

from gates.mutants.planting import in_numpy, in_trainer

RATIO, WEIGHTS, STATISTICS = "ratio.matches-definition", "weights.matches-definition", "statistics.match-definition"

in_numpy(
    "ratios.swapped",
    "numpy_ratio:importance_ratio",
    "ratios:swapped_pair",
    mistake="the ratio is old over policy",
    arises="exp(old − policy): the sign of the difference",
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.sum-for-mean",
    "numpy_ratio:importance_ratio",
    "ratios:sum_for_mean",
    mistake="the sequence's ratio is the product where the geometric mean was asked for",
    arises="GSPO's length normalisation forgotten",
    caught_by=(RATIO,),
)
in_numpy(
    "ratios.padded-mean",
    "numpy_ratio:sequence_ratio",
    "ratios:padded_mean",
    mistake="the mean runs over the padded width instead of the tokens",
    arises="`.mean(-1)` of a masked difference",
    caught_by=(RATIO, "loss.gspo.matches-definition"),
)
in_numpy(
    "ratios.clamped-difference",
    "numpy_terms:exponential",
    "ratios:clamped_difference",
    mistake="log-ratios are clamped to ±1 before exp, silently",
    arises="a clamp against overflow, as in verl's compute_policy_loss (±20)",
    caught_by=(RATIO, STATISTICS),
)
in_numpy(
    "ratios.float32-difference",
    "numpy_terms:difference",
    "ratios:float32_difference",
    mistake="log-probs are subtracted in float32 and the rounding is forgotten",
    arises="a subtraction in the dtype of the log-probs",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "ratios.rounded-difference",
    "numpy_terms:difference",
    "ratios:rounded_difference",
    mistake="what the rounding of a float64 difference lost is forgotten",
    arises="exp(policy − old) as it is written",
    caught_by=(RATIO, "loss.full-precision"),
)
in_numpy(
    "weights.exclusive-bounds",
    "numpy_ratio:corrected",
    "ratios:exclusive_bounds",
    mistake="MIS drops a ratio that is exactly its bound",
    arises="`(r > low) & (r < high)`",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.lower-bound-ignored",
    "numpy_ratio:corrected",
    "ratios:lower_bound_ignored",
    mistake="c_min is not applied: every correction is one-sided",
    arises="TRL's first TIS had an upper cap only",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.lower-bound-invented",
    "numpy_ratio:corrected",
    "ratios:lower_bound_invented",
    mistake="without c_min the lower bound is 1 / c_max",
    arises="a symmetric interval assumed in log space",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.tis-for-mis",
    "numpy_ratio:corrected",
    "ratios:clamp_for_mask",
    mistake="ratios outside MIS's interval are clamped instead of dropped",
    arises="the mode's name read, its branch not written",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.unrecorded-is-impossible",
    "numpy_ratio:recorded",
    "ratios:unrecorded_is_impossible",
    mistake="a sampling log-prob that was not recorded counts as −inf, so its weight is infinite",
    arises="nan_to_num with the lowest number",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.unrecorded-is-certain",
    "numpy_ratio:recorded",
    "ratios:unrecorded_is_certain",
    mistake="a sampling log-prob that was not recorded counts as 0, probability one",
    arises="nan_to_num with its default",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "weights.mean-of-sequence",
    "numpy_ratio:importance_weights",
    "ratios:swapped_levels",
    mistake="token weights are given where the sequence's were asked for, and the other way round",
    arises="one configuration key for two levels",
    caught_by=(WEIGHTS,),
)
in_numpy(
    "statistics.k3-reversed",
    "numpy_ratio:mismatch",
    "ratios:reversed_mismatch",
    mistake="k3 of −D: the estimate of the other direction",
    arises="the reference-KL helper called with the ratio's arguments",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.nearest-rank",
    "numpy_ratio:quantile",
    "ratios:nearest_rank",
    mistake="p99 is the nearest rank instead of an interpolation",
    arises="sorted(x)[int(0.99 * n)]",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.population-quantile",
    "numpy_ratio:quantile",
    "ratios:population_quantile",
    mistake="p99 interpolates around 0.99·n instead of 0.99·(n − 1)",
    arises="another of the nine definitions of a quantile",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clamped-ess",
    "numpy_ratio:effective_share",
    "ratios:clamped_ess",
    mistake="the effective sample size is that of clamped ratios, which look healthier",
    arises="the ratio variable overwritten by its clip",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.chi2-without-minus-one",
    "numpy_ratio:chi_squared",
    "ratios:second_moment",
    mistake="χ² is the mean of r², not of r² − 1",
    arises="the second moment reported under χ²'s name",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.outside-for-clipped",
    "numpy_ratio:shares",
    "ratios:outside_for_clipped",
    mistake="the clip fraction counts ratios outside the range whatever the advantage",
    arises="`(r < low) | (r > high)` called the clip fraction",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.clipped-signs-swapped",
    "numpy_ratio:shares",
    "ratios:clipped_signs_swapped",
    mistake="the low clip is counted where A > 0 and the high where A < 0",
    arises="the sides that a clip leaves alone, counted as those that it stops",
    caught_by=(STATISTICS,),
)
in_numpy(
    "statistics.padding-counts",
    "numpy_ratio:ratio_statistics",
    "ratios:padding_counts",
    mistake="padding enters the statistics as ratios of 1",
    arises="means over (B, T) of masked differences",
    caught_by=(STATISTICS,),
)
in_trainer(
    "statistics.trainer-reversed",
    "metrics.ratios:statistics",
    "trainer_options:reverse_the_ratio",
    mistake="the trainer's metrics are of the old policy against the new one",
    arises="old − new, as some KL estimators take it",
    caught_by=(STATISTICS,),
)
