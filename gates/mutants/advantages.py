"""Mistakes in group advantages."""

from gates.mutants.planting import in_numpy

in_numpy(
    "advantages.group-and-batch-std-swapped",
    "scale_divisor",
    "swap_group_and_batch",
    mistake="the deviation of the batch divides where the group's should, and the other way round",
    arises="a scale_rewards flag that was wired the wrong way round",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.residue-of-a-constant-group",
    "group_advantages",
    "naive_mean",
    mistake="R − mean(R) of equal rewards is a rounding residue, and a tiny deviation amplifies it",
    source="mlxrl 0.2.4 group_normalize_rewards",
    caught_by=("advantages.constant-group-is-zero",),
)
in_numpy(
    "advantages.unscored-counts-zero",
    "group_advantages",
    "unscored_is_zero",
    mistake="a reward that could not be scored counts as 0 and shifts the mean of its group",
    arises="nan_to_num before the group mean",
    caught_by=("advantages.unscored-rewards",),
)
