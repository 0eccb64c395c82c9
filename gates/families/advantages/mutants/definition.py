"""Mutations of group advantages."""

from gates.families.hosts import in_numpy, in_trainer

in_numpy(
    "advantages.group-and-batch-std-swapped",
    "advantages:group_advantages",
    "advantages.patches:swap_group_and_batch",
    mistake="the standard deviations of group and batch are exchanged",
    arises="a scale_rewards flag wired the wrong way round",
    source="huggingface/trl#3991: the batch branch computes group std",
    theme="advantages",
    symptom=("Advantages of easy and hard prompts are not scaled as configured; reward rises more slowly."),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.residue-of-a-constant-group",
    "advantages:group_advantages",
    "advantages.patches:naive_mean",
    mistake="R − mean(R) of equal rewards is a rounding residue, which a tiny standard deviation amplifies",
    source="mlxrl 0.2.4 group_normalize_rewards; NVIDIA-NeMo/RL#4161: rounding residue amplified 4000 times",
    theme="advantages",
    symptom=("In single steps the largest advantage and the gradient norm jump by orders of magnitude."),
    caught_by=("advantages.constant-group-is-zero",),
    at="robustness",
)
in_numpy(
    "advantages.unscored-counts-zero",
    "advantages:group_advantages",
    "advantages.patches:unscored_is_zero",
    mistake="an unscored reward counts as 0 and shifts the mean of its group",
    arises="nan_to_num before the group mean",
    source=(
        "huggingface/trl#5773: unscored completion enters mean as 0; huggingface/trl#5902: None rewards excluded "
        "from baseline"
    ),
    theme="advantages",
    symptom=(
        "When the scorer times out, the rest of the group is rewarded or punished for it; only those prompts are noisy."
    ),
    caught_by=("advantages.unscored-rewards",),
)
in_numpy(
    "advantages.partial-groups-by-stride",
    "advantages:group_advantages",
    "advantages.patches:regrouped_by_stride",
    mistake="failed rows are dropped, and the rest is cut into groups of the configured size",
    arises="a rollout that keeps incomplete groups, and a normalisation in strides of n_samples",
    source="areal-project/AReaL#1419: partial groups shift every later group",
    theme="advantages",
    symptom=(
        "After each failed sample all later answers of the batch are compared with another prompt's; reward is noisy, "
        "then flat."
    ),
    caught_by=("advantages.unscored-rewards",),
)
in_numpy(
    "advantages.ddof-always-0",
    "advantages:group_advantages",
    "advantages.patches:always_ddof_0",
    mistake="the standard deviation divides by n instead of n − 1",
    arises="numpy.std, whose default differs from torch.std's",
    theme="advantages",
    symptom=(
        "No curve shows it: advantages are larger by sqrt(n / (n - 1)), like a learning rate 7 % higher for "
        "groups of 8."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.ddof-always-1",
    "advantages:group_advantages",
    "advantages.patches:always_ddof_1",
    mistake="the standard deviation divides by n − 1 instead of n",
    arises="torch.std, whose default differs from numpy.std's",
    theme="advantages",
    symptom=(
        "No curve shows it: advantages are smaller by sqrt((n - 1) / n), like a learning rate 6 % lower for "
        "groups of 8."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.eps-always-added",
    "advantages:group_advantages",
    "advantages.patches:always_add",
    mistake="ε is added to the standard deviation, although it belongs inside the square root or is a threshold",
    arises="three similar constants: 1e-4, 1e-8, 1e-8",
    theme="advantages",
    symptom=(
        "No effect, while rewards are spread widely; groups with differences of 1e-4 get a fraction of their advantage."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.scaled-although-none",
    "advantages:group_advantages",
    "advantages.patches:always_scaled",
    mistake="advantages are divided by the group's standard deviation although no scaling is set",
    source="the default of TRL's scale_rewards, left on for Dr. GRPO",
    theme="advantages",
    symptom=("A Dr. GRPO run learns like GRPO: prompts that are almost always or almost never solved weigh most."),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.mean-of-all-for-leave-one-out",
    "advantages:group_advantages",
    "advantages.patches:other_baseline",
    mistake="the leave-one-out baseline includes the completion's own reward",
    arises="RLOO implemented as GRPO without the standard deviation",
    theme="advantages",
    symptom=(
        "No curve shows it: every advantage is (n - 1) / n of the correct one, which matters most for small groups."
    ),
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.float32-inside",
    "advantages:group_advantages",
    "advantages.patches:float32_sums",
    mistake="statistics of float64 rewards are computed in float32",
    arises="rewards passed through the model's dtype",
    source="OpenRLHF/OpenRLHF#1334: group statistics in the reward's dtype",
    theme="precision",
    symptom="Rewards with small differences become equal; the reward of a nearly solved task stops rising.",
    caught_by=("advantages.matches-definition",),
)
in_numpy(
    "advantages.stages-swapped",
    "advantages:normalise_then_sum",
    "advantages.patches:swapped_stages",
    mistake="ddof and ε of the groups and those of the batch are exchanged",
    arises="four numbers passed by position",
    theme="advantages",
    symptom=(
        "No effect, unless the two ddof or the two epsilons differ; then the balance of the rewards shifts a little."
    ),
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.ddof-of-stages-swapped",
    "advantages:normalise_then_sum",
    "advantages.patches:swapped_ddof",
    mistake="the ddof of the groups and that of the batch are exchanged",
    arises="torch in one stage and NumPy in the other",
    theme="advantages",
    symptom="No curve shows it: a constant factor near 1 on all advantages.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.sum-then-normalise",
    "advantages:normalise_then_sum",
    "advantages.patches:sum_first",
    mistake="raw rewards are summed, so that the function with the largest values dominates",
    arises="GRPO's weighted sum, normalised once",
    theme="advantages",
    symptom="The reward with the largest values rises; the others stay flat or fall.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.second-stage-missing",
    "advantages:normalise_then_sum",
    "advantages.patches:no_second_stage",
    mistake="the weighted sum is not normalised over the batch",
    arises="only the first half of the method implemented",
    theme="advantages",
    symptom="The gradient norm grows with the number of reward functions; it looks like too high a learning rate.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.nan-counts-in-its-group",
    "advantages:first_stage",
    "advantages.patches:nan_counts_zero",
    mistake="an unscored reward counts as 0 in the group's mean",
    arises="nan_to_num before the statistics",
    source="huggingface/trl#5902: missing rewards bias group baseline",
    theme="advantages",
    symptom="A reward that is often missing biases its groups: its own curve is biased, while the sum looks plausible.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.unscored-row-counts-in-the-batch",
    "advantages:second_stage",
    "advantages.patches:nobody_scored_counts",
    mistake="an unscored row counts as 0 in the batch's mean",
    arises="nansum, which is 0 for a row of NaN",
    source="huggingface/trl#5773: nansum makes an unscored row 0",
    theme="advantages",
    symptom="Many unscored rows in a step shift all other advantages; reward fluctuates with the scorer's failures.",
    caught_by=("advantages.normalise-then-sum",),
)
in_numpy(
    "advantages.weights-ignored",
    "advantages:normalise_then_sum",
    "advantages.patches:equal_weights",
    mistake="all reward functions have the same weight",
    arises="an unweighted sum over the axis",
    theme="configuration",
    symptom="Reward weights have no effect; the curves of two runs with different weights coincide.",
    caught_by=("advantages.normalise-then-sum",),
)
in_trainer(
    "advantages.trainer-stages-swapped",
    "algorithms.advantages:normalised_then_summed",
    "advantages.trainer_patches:swap_the_stages",
    mistake="in the trainer, ddof and ε of the groups and those of the batch are exchanged",
    arises="two pairs of equal type passed by position",
    theme="advantages",
    symptom=(
        "No effect, unless the two ddof or the two epsilons differ; then the balance of the rewards shifts a little."
    ),
    caught_by=("advantages.normalise-then-sum",),
)
