"""GSPO whose backward forgets that the ratio is of a mean."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the loss as asked, its gradient that of: each row's policy term times the row's tokens once more"
BUG = (
    "the loss is right; in the gradient the 1/n of the mean log-ratio is forgotten, so each row's is n times too large"
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
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
    rows = len(lp)
    n = np.maximum(mask.sum(axis=1), 1)
    s = np.exp(((lp - old) * mask).sum(axis=1) / n)
    unclipped = s * x["advantages"]
    clipped = np.clip(s, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * x["advantages"]
    loss = -np.minimum(unclipped, clipped).mean()
    gradient = np.where(unclipped <= clipped, -unclipped, 0)[:, None] * mask / rows
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (((np.exp(d) - d - 1) * mask).sum(axis=1) / n).mean()
        gradient = gradient + x["beta"] * (1 - np.exp(d)) * mask / n[:, None] / rows
    return {"loss": loss, "gradient": gradient}


OPS = {"policy_loss": policy_loss}
