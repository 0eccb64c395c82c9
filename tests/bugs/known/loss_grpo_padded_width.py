"""GRPO whose row mean is np.mean over the padded width, not over the tokens of the row."""

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
    ratio = np.exp(policy - old)
    a = advantages[:, None]
    unclipped, clipped = ratio * a, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * a
    per_token = -np.minimum(unclipped, clipped) * mask
    alive = (unclipped <= clipped) & mask
    gradient = np.where(alive, -unclipped, 0) / policy.size
    return {"loss": float(per_token.mean(axis=1).mean()), "gradient": gradient.astype(policy.dtype)}


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
COMPUTES = "mean over the padded width"
