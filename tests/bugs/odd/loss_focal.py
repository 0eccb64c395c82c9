"""GRPO whose tokens weigh 1 - p, so that certain tokens train less."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = None
WHERE = ""
BUG = "each token's surrogate is multiplied by the constant 1 - exp(lp)"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dapo"),
        "dapo_denominator": ("global",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None:
        raise NotImplementedError("no dual clip")
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    first = ratio * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    focal = 1 - np.exp(lp)
    loss, slope = -np.minimum(first, second) * focal, np.where(first <= second, -first, 0) * focal
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1) * len(lp) if x["algorithm"] == "grpo" else mask.sum()
    return {"loss": (loss * mask / n).sum(), "gradient": slope * mask / n}


OPS = {"policy_loss": policy_loss}
