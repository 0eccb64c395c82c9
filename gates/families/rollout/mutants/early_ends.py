"""Mutations that let rows continue after their end."""

from gates.families.hosts import in_trainer

in_trainer(
    "endings.loop-runs-to-the-limit",
    "rollout.decode:decode",
    "rollout.patches:to_the_limit",
    mistake="the loop always runs to max_tokens and cuts at the first EOS afterwards",
    arises="a for loop over max_tokens without `if done.all(): break`",
    theme="ratio and rollout",
    symptom="No curve shows it, but the time of a rollout does not fall when completions get shorter.",
    caught_by=("rollout.early-ends-save-time",),
)
