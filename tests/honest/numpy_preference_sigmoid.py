"""DPO as −log(sigmoid(z)), literally, and KTO by labels, in NumPy with gradients by hand.

gates check preference --subject tests/honest/numpy_preference_sigmoid.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def sigmoid(z: Any) -> Any:
    """Return 1 / (1 + e^−z)."""
    return 1 / (1 + np.exp(-z))


def implicit_rewards(policy: Any, reference: Any, mask: Any, beta: float) -> Any:
    """Return β log π(y) / π_ref(y)."""
    if reference is None:
        reference = np.zeros_like(policy)
    return policy.dtype.type(beta) * np.where(mask, policy - reference, 0).sum(axis=1)


def preference_loss(*, policy: Any, reference: Any, mask: Any, beta: float) -> dict[str, Any]:
    """Return the mean of −log σ(r_c − r_r) over pairs."""
    rewards = implicit_rewards(policy, reference, mask, beta)
    probability = sigmoid(rewards[0::2] - rewards[1::2])
    slope = beta * sigmoid(rewards[1::2] - rewards[0::2]) / len(probability)
    gradient = np.zeros_like(policy)
    gradient[0::2] = -slope[:, None] * mask[0::2]
    gradient[1::2] = slope[:, None] * mask[1::2]
    return {"loss": -np.log(probability).mean(), "gradient": gradient}


def kto_loss(
    *,
    policy: Any,
    reference: Any,
    mask: Any,
    desirable: Any,
    mismatched: Any,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> dict[str, Any]:
    """Return λ − the value of each completion, in the mean over all."""
    rewards = implicit_rewards(policy, reference, mask, beta)
    point = policy.dtype.type(beta) * max(mismatched.mean(), 0)
    total, gradient = 0.0, np.zeros_like(policy)
    for row, (reward, good) in enumerate(zip(rewards, desirable, strict=True)):
        weight = desirable_weight if good else undesirable_weight
        sign = 1 if good else -1
        value = sigmoid(sign * (reward - point))
        total += weight * (1 - value) / len(rewards)
        gradient[row, mask[row]] = -weight * sign * beta * value * (1 - value) / len(rewards)
    return {"loss": total, "gradient": gradient}


OPS = {"preference_loss": preference_loss, "kto_loss": kto_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpo",)}}
