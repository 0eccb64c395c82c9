"""Mutations of group advantages."""

from gates.families.hosts import in_numpy, in_trainer

in_numpy(
    "advantages.group-and-batch-std-swapped",
    "advantages:group_advantages",
    "advantages.patches:swap_group_and_batch",
    mistake="the deviation of the batch divides where the group's should, and the other way round",
    arises="a scale_rewards flag that was wired the wrong way round",
    source="huggingface/trl#3991: the batch branch computes group std",
    theme="advantages",
    symptom=(
        "Advantages of easy and hard prompts have other sizes than the setting promises; reward rises, more slowly."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.residue-of-a-constant-group",
    "advantages:group_advantages",
    "advantages.patches:naive_mean",
    mistake="R − mean(R) of equal rewards is a rounding residue, and a tiny deviation amplifies it",
    source="mlxrl 0.2.4 group_normalize_rewards; NVIDIA-NeMo/RL#4161: rounding residue amplified 4000 times",
    theme="advantages",
    symptom=(
        "Single steps where the largest advantage and the gradient norm jump by orders of magnitude, then calm again."
    ),
    caught_by=("advantages.constant-group-is-zero",),
    at="robustness",
)
in_numpy(
    "advantages.unscored-counts-zero",
    "advantages:group_advantages",
    "advantages.patches:unscored_is_zero",
    mistake="a reward that could not be scored counts as 0 and shifts the mean of its group",
    arises="nan_to_num before the group mean",
    source=(
        "huggingface/trl#5773: unscored completion enters mean as 0; huggingface/trl#5902: None rewards excluded "
        "from baseline"
    ),
    theme="advantages",
    symptom=(
        "Where the scorer times out, the rest of the group is praised or blamed for it; reward is noisy on those "
        "prompts only."
    ),
    caught_by=("advantages.unscored-rewards",),
)
in_numpy(
    "advantages.partial-groups-by-stride",
    "advantages:group_advantages",
    "advantages.patches:regrouped_by_stride",
    mistake="rows that failed are dropped, and the rest is cut into groups of the configured size",
    arises="a rollout that keeps the survivors of a group, and a normalisation that counts in strides of n_samples",
    source="areal-project/AReaL#1419: partial groups shift every later group",
    theme="advantages",
    symptom="After each failed sample all later answers of the batch are compared with another prompt's; reward is noisy, then flat.",
    caught_by=("advantages.unscored-rewards",),
)
in_numpy(
    "advantages.ddof-always-0",
    "advantages:group_advantages",
    "advantages.patches:always_ddof_0",
    mistake="the deviation divides by n where n − 1 was asked for",
    arises="numpy.std, whose default differs from torch.std's",
    theme="advantages",
    symptom=(
        "Nothing in any curve: advantages are larger by sqrt(n / (n - 1)), like a learning rate 7 % higher for "
        "groups of 8."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.ddof-always-1",
    "advantages:group_advantages",
    "advantages.patches:always_ddof_1",
    mistake="the deviation divides by n − 1 where n was asked for",
    arises="torch.std, whose default differs from numpy.std's",
    theme="advantages",
    symptom=(
        "Nothing in any curve: advantages are smaller by sqrt((n - 1) / n), like a learning rate 6 % lower for "
        "groups of 8."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.eps-always-added",
    "advantages:group_advantages",
    "advantages.patches:always_add",
    mistake="ε is added to the deviation where it belongs inside the root or is a threshold",
    arises="three constants that look alike: 1e-4, 1e-8, 1e-8",
    theme="advantages",
    symptom="Nothing, while rewards spread widely; groups that differ by 1e-4 get a fraction of their advantage.",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.scaled-although-none",
    "advantages:group_advantages",
    "advantages.patches:always_scaled",
    mistake="the group's deviation divides although nothing should",
    source="the default of TRL's scale_rewards, left on for Dr. GRPO",
    theme="advantages",
    symptom=(
        "A run called Dr. GRPO that learns like GRPO: prompts that are nearly solved or nearly hopeless weigh most."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.mean-of-all-for-leave-one-out",
    "advantages:group_advantages",
    "advantages.patches:other_baseline",
    mistake="the baseline holds the completion's own reward",
    arises="RLOO written as GRPO without the deviation",
    theme="advantages",
    symptom="Nothing in any curve: every advantage is (n - 1) / n of what it should be, most for small groups.",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.float32-inside",
    "advantages:group_advantages",
    "advantages.patches:float32_sums",
    mistake="float64 rewards are averaged in float32",
    arises="rewards passed through the model's dtype",
    source="OpenRLHF/OpenRLHF#1334: group statistics in the reward's dtype",
    theme="precision",
    symptom="Rewards that differ little tie; the reward of a nearly solved task stops rising.",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.stages-swapped",
    "advantages:normalise_then_sum",
    "advantages.patches:swapped_stages",
    mistake="the batch's ddof and ε are used in the groups, and the groups' over the batch",
    arises="four numbers by position",
    theme="advantages",
    symptom="Nothing, unless the two ddof or the two epsilons differ; then the balance of the rewards drifts a little.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.ddof-of-stages-swapped",
    "advantages:normalise_then_sum",
    "advantages.patches:swapped_ddof",
    mistake="the batch's ddof is used in the groups, and the groups' over the batch",
    arises="torch in one stage and NumPy in the other",
    theme="advantages",
    symptom="Nothing in any curve: a constant factor near 1 on all advantages.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.sum-then-normalise",
    "advantages:normalise_then_sum",
    "advantages.patches:sum_first",
    mistake="raw rewards are summed: the function with the largest numbers decides",
    arises="GRPO's weighted sum, normalised once",
    theme="advantages",
    symptom="The reward with the largest numbers rises; the others stay flat or fall.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.second-stage-missing",
    "advantages:normalise_then_sum",
    "advantages.patches:no_second_stage",
    mistake="the weighted sum is not normalised over the batch",
    arises="the first half of the method",
    theme="advantages",
    symptom="The gradient norm grows with the number of reward functions; it looks like too high a learning rate.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.nan-counts-in-its-group",
    "advantages:first_stage",
    "advantages.patches:nan_counts_zero",
    mistake="what could not be scored counts as 0 in the group's mean",
    arises="nan_to_num before the statistics",
    source="huggingface/trl#5902: missing rewards bias group baseline",
    theme="advantages",
    symptom="A reward that is often missing pulls its groups: its own curve is biased, the sum looks plausible.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.unscored-row-counts-in-the-batch",
    "advantages:second_stage",
    "advantages.patches:nobody_scored_counts",
    mistake="a row that nobody scored counts as 0 in the batch's mean",
    arises="nansum, which is 0 for nothing",
    source="huggingface/trl#5773: nansum makes an unscored row 0",
    theme="advantages",
    symptom=(
        "Steps with many unscored rows shift all other advantages to one side; reward wobbles with the scorer's "
        "failures."
    ),
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.weights-ignored",
    "advantages:normalise_then_sum",
    "advantages.patches:equal_weights",
    mistake="all reward functions weigh the same",
    arises="a sum over the axis",
    theme="configuration",
    symptom="Changing the reward weights changes nothing; the curves of two such runs lie on each other.",
    caught_by=("advantages.normalise-then-sum",),
)
in_trainer(
    "advantages.trainer-stages-swapped",
    "algorithms.advantages:normalised_then_summed",
    "advantages.trainer_patches:swap_the_stages",
    mistake="the trainer uses the batch's ddof and ε in the groups, and the groups' over the batch",
    arises="two pairs of the same kind",
    theme="advantages",
    symptom="Nothing, unless the two ddof or the two epsilons differ; then the balance of the rewards drifts a little.",
    caught_by=("advantages.normalise-then-sum",),
)
