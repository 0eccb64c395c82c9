"""GSPO without the length normalisation of its ratio."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the ratio of the row, exp(Σ D)"
BUG = "the sequence ratio is exp of the sum of the log-ratios, not of their mean"
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
    s = np.exp(((lp - old) * mask).sum(axis=1))
    unclipped = s * x["advantages"]
    clipped = np.clip(s, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * x["advantages"]
    loss = -np.minimum(unclipped, clipped).mean()
    slope = np.where(unclipped <= clipped, -unclipped, 0) / rows
    gradient = slope[:, None] * mask
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (((np.exp(d) - d - 1) * mask).sum(axis=1) / n).mean()
        gradient = gradient + x["beta"] * (1 - np.exp(d)) * mask / n[:, None] / rows
    return {"loss": loss, "gradient": gradient}


OPS = {"policy_loss": policy_loss}
