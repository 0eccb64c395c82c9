"""BNPO as in TRL, but the token mean is taken over the whole step and not over each micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "token mean over the step"
BUG = "one token mean over all rows of the step; the split into micro-batches is ignored"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("bnpo-trl",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "kl_estimator": ("k3", "k2"),
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
        k3 = x["kl_estimator"] == "k3"
        loss = loss + x["beta"] * (np.exp(d) - d - 1 if k3 else d**2 / 2)
        slope = slope + x["beta"] * (1 - np.exp(d) if k3 else -d)
    weight = mask / np.maximum(mask.sum(), 1)
    return {"loss": (loss * weight).sum(), "gradient": slope * weight}


OPS = {"policy_loss": policy_loss}
