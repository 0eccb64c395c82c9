"""Advantages and a GRPO loss with its gradient by rlkernels, on NumPy arrays."""

import numpy as np

import rlkernels

policy = np.full((8, 3), -1.0)
advantages = rlkernels.group_advantages(np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5]), group_size=4)
step = rlkernels.policy_loss(
    policy,
    old=policy - 0.1,
    reference=policy - 0.2,
    advantages=advantages,
    algorithm="grpo",
    epsilon_low=0.2,
    epsilon_high=0.2,
    beta=0.04,
)
print(f"loss {step.loss:.6f}, gradient {step.gradient.shape}")
