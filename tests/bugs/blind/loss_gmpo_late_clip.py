"""GMPO that clips the mean log-ratio of the sequence and not each token's."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "bounds on the row's mean log-ratio"
BUG = "the log-ratio is averaged first and then held between the bounds, where each token's should be held before the mean"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gmpo",),
        "advantages": ("row",),
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
    advantages, rows = x["advantages"], len(lp)
    n = np.maximum(mask.sum(axis=1), 1)
    mean = ((lp - old) * mask).sum(axis=1) / n
    held = np.where(advantages > 0, np.minimum(mean, x["epsilon_high"]), np.maximum(mean, -x["epsilon_low"]))
    ratio = np.exp(held)
    loss = -(ratio * advantages).mean()
    slope = np.where(held == mean, -ratio * advantages, 0)
    gradient = slope[:, None] * mask / n[:, None] / rows
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (((np.exp(d) - d - 1) * mask).sum(axis=1) / n).mean()
        gradient = gradient + x["beta"] * (1 - np.exp(d)) * mask / n[:, None] / rows
    return {"loss": loss, "gradient": gradient.astype(lp.dtype)}


OPS = {"policy_loss": policy_loss}
