"""DAPO that always takes the clipped ratio: no minimum with the unclipped term."""

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
    dapo_denominator: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    delta: Any = None,
    beta: Any,
    **_: Any,
) -> dict[str, Any]:
    if algorithm != "dapo" or dapo_denominator != "global" or beta or delta is not None:
        raise NotImplementedError
    log_ratio = np.where(mask, policy - old, 0)
    ratio = np.exp(log_ratio)
    low, high = 1 - epsilon_low, 1 + epsilon_high
    objective = np.clip(ratio, low, high) * advantages[:, None]
    inside = (ratio > low) & (ratio < high) & mask
    tokens = mask.sum()
    gradient = np.where(inside, -ratio * advantages[:, None], 0) / tokens
    return {"loss": float(-objective[mask].sum() / tokens), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "advantages": ("row",),
        "dapo_denominator": ("global",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "rows": ("mask",),
        "weights": (False,),
    }
}
COMPUTES = "clip(r)·A without the minimum"
