"""GRPO whose KL is logged and added, but was computed without a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "KL without gradient"
BUG = "the loss is right; the KL adds nothing to the gradient, because it was computed under no_grad"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dr_grpo"),
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
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1) if x["algorithm"] == "grpo" else x["max_length"]
    weight = mask / n / len(lp)
    return {"loss": (loss * weight).sum(), "gradient": (slope * weight).astype(lp.dtype)}


OPS = {"policy_loss": policy_loss}
