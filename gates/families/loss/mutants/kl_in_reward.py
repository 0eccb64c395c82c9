"""Mutations of a KL in the reward."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "loss.kl-in-reward-leaks",
    "algorithms.objective:kl_penalty",
    "loss.patches.trainer:leaking_kl",
    mistake="the KL in the reward keeps its gradient, while the loss has the right value",
    arises="rewards - beta * kl, computed inside the loss",
    theme="lost gradients",
    symptom="Loss and KL look right, but the policy is pulled to the reference twice, once through the reward.",
    caught_by=("loss.rloo.kl-in-reward",),
)
in_trainer(
    "loss.kl-in-reward-raises",
    "algorithms.advantages:penalised",
    "loss.patches.trainer:raised_reward",
    mistake="the KL is added to the reward instead of subtracted, so that drift is rewarded",
    arises="a sign error: k1 is old - reference here and -log-ratio elsewhere",
    theme="KL",
    symptom="Reward including the KL rises steadily while the text degrades, because drift is rewarded.",
    caught_by=("loss.rloo.kl-in-reward",),
)
in_trainer(
    "loss.kl-in-reward-averaged",
    "algorithms.ratio:kl_in_reward",
    "loss.patches.trainer:averaged_penalty",
    mistake="the KL in the reward is the mean over a completion's tokens instead of the sum",
    arises="the reduction of the KL loss reused",
    theme="KL",
    symptom="The KL grows with completion length, because a long answer pays no more than a short one.",
    caught_by=("loss.rloo.kl-in-reward",),
)
