"""Mutations that break a law of advantages."""

from gates.families.hosts import in_numpy

LAWS = ("advantages.laws-hold",)

in_numpy(
    "advantage-laws.no-baseline-below-zero",
    "advantages:group_advantages",
    "advantages.patches:baseline_at_least_zero",
    mistake="the baseline is at least 0, so rewards that are all negative push every completion down",
    arises="max(0, mean), a guard for an empty group",
    theme="advantages",
    symptom=(
        "With negative rewards every completion is pushed down: entropy and length drift until a constant is added to "
        "the reward."
    ),
    caught_by=LAWS,
)
in_numpy(
    "advantage-laws.own-reward-in-others",
    "advantages:group_advantages",
    "advantages.patches:divided_by_all",
    mistake="leave-one-out divides the sum of the other rewards by G instead of G − 1",
    arises="(sum - reward) / group_size",
    theme="advantages",
    symptom=(
        "Rewards with a large mean give large advantages of one sign; the curve changes when a constant is added to "
        "the reward."
    ),
    caught_by=LAWS,
)
in_numpy(
    "advantage-laws.clipped-rewards",
    "advantages:group_advantages",
    "advantages.patches:clipped",
    mistake="rewards are clipped to [-10, 10] before the group statistics",
    arises="PPO's reward clipping, made for game scores",
    theme="advantages",
    symptom="A reward in larger units saturates at the clip: all good completions look alike and get advantage 0.",
    caught_by=LAWS,
)
in_numpy(
    "advantage-laws.units-decide",
    "advantages:first_stage",
    "advantages.patches:largest_unit",
    mistake="each reward function is centred, then divided by the largest standard deviation of all functions",
    arises="one std over the whole table instead of one for each column",
    theme="advantages",
    symptom="One reward function improves and the others stagnate; their units decide which one.",
    caught_by=("advantages.normalise-then-sum.ignores-units",),
)
