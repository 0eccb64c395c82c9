"""GRPO whose k3 estimator has policy and reference the wrong way round."""

from __future__ import annotations

from typing import Any

import numpy as np


def row_mean(x: Any, mask: Any) -> Any:
    return np.where(mask, x, 0).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)


def policy_loss(
    *,
    policy: Any,
    old: Any,
    reference: Any,
    advantages: Any,
    mask: Any,
    algorithm: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    delta: Any = None,
    beta: Any,
    **_: Any,
) -> dict[str, Any]:
    if algorithm != "grpo" or delta is not None:
        raise NotImplementedError
    ratio, a = np.exp(policy - old), advantages[:, None]
    first, second = ratio * a, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * a
    objective, slope = np.minimum(first, second), np.where(first <= second, first, 0)
    if beta:
        d = policy - reference  # the paper has reference − policy
        objective = objective - beta * (np.exp(d) - d - 1)
        slope = slope - beta * (np.exp(d) - 1)
    weight = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / len(policy)
    return {"loss": float(-row_mean(objective, mask).mean()), "gradient": (-slope * weight).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "advantages": ("row",),
        "kl_clamp": (None,),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "rows": ("mask",),
        "weights": (False,),
    }
}
COMPUTES = "KL inverted"
