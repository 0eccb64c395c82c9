"""DAPO in name only: GRPO's mean of row means, and one clip width for both sides."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "token mean over the step: Σ m·l / Σ m) · ε_low on both sides of the clip"
BUG = "two bugs: rows are averaged over their own tokens before the mean, and epsilon_low is the width of both bounds"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "weights": (False,),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None:
        raise NotImplementedError("no dual clip")
    lp, eps = x["policy"], x["epsilon_low"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    first, second = ratio * advantages, np.clip(ratio, 1 - eps, 1 + eps) * advantages
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": ((loss * mask).sum(axis=1, keepdims=True) / n).mean(), "gradient": slope * mask / n / len(lp)}


OPS = {"policy_loss": policy_loss}
