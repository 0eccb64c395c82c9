"""GRPO that sums over rows where it should average: the loss grows with the batch."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "sum over rows of token means, not divided by B"
BUG = "the rows' means are summed, not averaged: the division by the number of rows is missing"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"] if x["advantages"].ndim == 2 else x["advantages"][:, None]
    ratio = np.exp(lp - old)
    bounded = ratio if x["delta"] is None else np.minimum(ratio, x["delta"])
    first = bounded * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    loss, slope = -np.minimum(first, second), np.where((first <= second) & (bounded == ratio), -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": (loss * mask / n).sum(), "gradient": slope * mask / n}


OPS = {"policy_loss": policy_loss}
