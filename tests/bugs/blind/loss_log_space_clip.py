"""GRPO that clamps the log-ratio to the clip width and takes exp afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the clip on the log-ratio"
BUG = "the clip is exp(clamp(log r, -epsilon_low, epsilon_high)): bounds exp(-e) and exp(e) instead of 1 - e and 1 + e"
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
    log_ratio = lp - old
    first = np.exp(log_ratio) * advantages
    second = np.exp(np.clip(log_ratio, -x["epsilon_low"], x["epsilon_high"])) * advantages
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1) * len(lp) if x["algorithm"] == "grpo" else mask.sum()
    return {"loss": (loss * mask / n).sum(), "gradient": slope * mask / n}


OPS = {"policy_loss": policy_loss}
