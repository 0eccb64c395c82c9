"""GRPO with two mistakes: a mean over the padded width, and exchanged KL arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "KL inverted: of policy − reference"
BUG = "two bugs: the mean runs over all slots, padding included, and k3 takes policy minus reference"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
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
        d = lp - x["reference"]
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (np.exp(d) - 1)
    return {"loss": (loss * mask).mean(), "gradient": slope * mask / mask.size}


OPS = {"policy_loss": policy_loss}
