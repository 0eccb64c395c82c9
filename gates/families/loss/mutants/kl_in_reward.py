"""Mutations of a KL in the reward."""

from __future__ import annotations

from gates.families.hosts import in_trainer

in_trainer(
    "loss.kl-in-reward-leaks",
    "algorithms.objective:kl_penalty",
    "loss.patches.trainer:leaking_kl",
    mistake="the KL in the reward keeps its gradient; the loss has the right value",
    arises="rewards - beta * kl, computed inside the loss",
    theme="lost gradients",
    symptom="Loss and KL look right; the policy is pulled to the reference twice, once through the reward.",
    caught_by=("loss.rloo.kl-in-reward",),
)
in_trainer(
    "loss.kl-in-reward-raises",
    "algorithms.advantages:penalised",
    "loss.patches.trainer:raised_reward",
    mistake="the KL is added to the reward: drift is rewarded",
    arises="a sign: k1 is old - reference, and -log-ratio elsewhere",
    theme="KL",
    symptom="Reward with KL rises steadily while the text decays: drift itself is paid for.",
    caught_by=("loss.rloo.kl-in-reward",),
)
in_trainer(
    "loss.kl-in-reward-averaged",
    "algorithms.ratio:kl_in_reward",
    "loss.patches.trainer:averaged_penalty",
    mistake="the KL in the reward is the mean over a completion's tokens instead of their sum",
    arises="the reduction of the loss's KL reused",
    theme="KL",
    symptom="KL grows linearly with completion length: a long answer pays no more than a short one.",
    caught_by=("loss.rloo.kl-in-reward",),
)
