"""Dr. GRPO that divides by the longest completion of the batch."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "sum over tokens / (B · the longest row)"
BUG = "the sum is divided by the longest row of this batch (times rows) and not by the constant maximum length"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dr_grpo",),
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
        slope = slope + x["beta"] * (1 - np.exp(d))
    max_len = mask.sum(axis=1).max()
    return {"loss": (loss * mask).sum() / (len(lp) * max_len), "gradient": slope * mask / (len(lp) * max_len)}


OPS = {"policy_loss": policy_loss}
