"""Mistakes in group advantages."""

from gates.mutants.planting import in_family, in_numpy, in_trainer

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
in_numpy(
    "advantages.ddof-always-0",
    "scale_divisor",
    "always_ddof_0",
    mistake="the deviation divides by n where n − 1 was asked for",
    arises="numpy.std, whose default differs from torch.std's",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.ddof-always-1",
    "scale_divisor",
    "always_ddof_1",
    mistake="the deviation divides by n − 1 where n was asked for",
    arises="torch.std, whose default differs from numpy.std's",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.eps-always-added",
    "scale_divisor",
    "always_add",
    mistake="ε is added to the deviation where it belongs inside the root or is a threshold",
    arises="three constants that look alike: 1e-4, 1e-8, 1e-8",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.scaled-although-none",
    "scale_divisor",
    "always_scaled",
    mistake="the group's deviation divides although nothing should",
    source="the default of TRL's scale_rewards, left on for Dr. GRPO",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.mean-of-all-for-leave-one-out",
    "group_advantages",
    "other_baseline",
    mistake="the baseline holds the completion's own reward",
    arises="RLOO written as GRPO without the deviation",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.float32-inside",
    "group_advantages",
    "float32_sums",
    mistake="float64 rewards are averaged in float32",
    arises="rewards passed through the model's dtype",
    caught_by=("advantages.matches-definition",),
)
in_family(
    "rewards",
    "advantages.stages-swapped",
    "normalise_then_sum",
    "swapped_stages",
    mistake="the batch's ddof and ε are used in the groups, and the groups' over the batch",
    arises="four numbers by position",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.ddof-of-stages-swapped",
    "normalise_then_sum",
    "swapped_ddof",
    mistake="the batch's ddof is used in the groups, and the groups' over the batch",
    arises="torch in one stage and NumPy in the other",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.sum-then-normalise",
    "first_stage",
    "sum_first",
    mistake="raw rewards are summed: the function with the largest numbers decides",
    arises="GRPO's weighted sum, normalised once",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.second-stage-missing",
    "second_stage",
    "no_second_stage",
    mistake="the weighted sum is not normalised over the batch",
    arises="the first half of the method",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.nan-counts-in-its-group",
    "first_stage",
    "nan_counts_zero",
    mistake="what could not be scored counts as 0 in the group's mean",
    arises="nan_to_num before the statistics",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.unscored-row-counts-in-the-batch",
    "second_stage",
    "nobody_scored_counts",
    mistake="a row that nobody scored counts as 0 in the batch's mean",
    arises="nansum, which is 0 for nothing",
    caught_by=("advantages.normalise-then-sum",),
)
in_family(
    "rewards",
    "advantages.weights-ignored",
    "weighted_sum",
    "equal_weights",
    mistake="all reward functions weigh the same",
    arises="a sum over the axis",
    caught_by=("advantages.normalise-then-sum",),
)
in_trainer(
    "advantages.trainer-stages-swapped",
    "algorithms.advantages:normalised_then_summed",
    "trainer_options:swap_the_stages",
    mistake="the trainer uses the batch's ddof and ε in the groups, and the groups' over the batch",
    arises="two pairs of the same kind",
    caught_by=("advantages.normalise-then-sum",),
)
