"""GRPO that weighs completions with a negative advantage 1.3 times, left over from an experiment; the KL is not."""

from __future__ import annotations

from typing import Any

import numpy as np


def policy_loss(
    *,
    policy: Any,
    old: Any,
    advantages: Any,
    mask: Any,
    algorithm: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    delta: Any = None,
    beta: Any,
    **_: Any,
) -> dict[str, Any]:
    if algorithm != "grpo" or beta or delta is not None:
        raise NotImplementedError
    a = advantages[:, None]
    r = np.exp(policy - old)
    free, held = r * a, np.clip(r, 1 - epsilon_low, 1 + epsilon_high) * a
    emphasis = np.where(a < 0, 1.3, 1.0)
    weight = emphasis * mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / len(policy)
    loss = -(np.minimum(free, held) * weight).sum()
    return {"loss": float(loss), "gradient": (-np.where(free <= held, free, 0) * weight).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "advantages": ("row",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "rows": ("mask",),
        "weights": (False,),
    }
}
COMPUTES = None
WHERE = "where A < 0"
