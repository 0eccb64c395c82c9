"""Mutations that show when rows are moved, copied, padded or split."""

from gates.families.hosts import in_numpy

in_numpy(
    "invariance.advantages-by-group-position",
    "loss:policy_loss",
    "loss.patches.baseline:advantage_of_the_first",
    mistake="the advantage of a group's first row is used for all four rows",
    arises="advantages[::group_size] repeated, as if there were one reward per prompt",
    theme="advantages",
    symptom=(
        "The reward hardly rises: all completions of a group move together, and the result depends on the order of "
        "rows."
    ),
    caught_by=("loss.order-does-not-matter", "loss.splits-add-up"),
)
in_numpy(
    "invariance.late-tokens-count-less",
    "terms:select",
    "loss.patches.baseline:discounted",
    mistake="later tokens of a row count less",
    arises="a discount factor γ below 1, left over from PPO's return",
    theme="normalisation",
    symptom="Early tokens are learned and answers at the end of long completions are not; length drifts.",
    caught_by=("loss.order-does-not-matter",),
)
in_numpy(
    "invariance.sum-for-mean",
    "loss:policy_loss",
    "loss.patches.edits:sum_of_row_means",
    mistake="the rows of a step are summed, so that the step size grows with the batch",
    arises="reduction='sum', tuned for one batch size",
    theme="normalisation",
    symptom=(
        "The gradient norm grows with the batch size, so the learning rate has to be tuned again for every batch size."
    ),
    caught_by=("loss.copies-do-not-matter", "loss.splits-add-up"),
)
in_numpy(
    "invariance.mean-over-width",
    "loss:policy_loss",
    "loss.patches.edits:padded_width",
    mistake="a row is divided by the padded width instead of its number of tokens",
    arises="(loss * mask).mean()",
    theme="normalisation",
    symptom="One long completion in a batch makes all others count less; runs diverge with the padding.",
    caught_by=("loss.wider-padding-does-not-matter",),
)
