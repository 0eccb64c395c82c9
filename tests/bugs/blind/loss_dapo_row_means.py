"""DAPO that was renamed from GRPO: the mean over rows of each row's own mean."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "mean over rows of each row's token mean"
BUG = (
    "each row is averaged over its own tokens and the rows are averaged: GRPO's aggregation in place of the token mean"
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "dapo_denominator": ("global",),
        "rows": ("mask", "holes", "all", "lengths"),
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
    if x["lengths"] is not None:
        mask = (np.arange(lp.shape[1]) < x["lengths"][:, None]).astype(lp.dtype)
    advantages = x["advantages"] if x["advantages"].ndim == 2 else x["advantages"][:, None]
    ratio = np.exp((lp - old) * mask)
    high, low = 1 + x["epsilon_high"], 1 - x["epsilon_low"]
    loss = -np.where(advantages > 0, np.minimum(ratio, high), np.maximum(ratio, low)) * advantages
    live = np.where(advantages > 0, ratio <= high, ratio >= low)
    slope = -ratio * advantages * live
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    lengths = np.maximum(mask.sum(axis=1), 1)
    return {
        "loss": ((loss * mask).sum(axis=1) / lengths).mean(),
        "gradient": slope * mask / lengths[:, None] / len(lengths),
    }


OPS = {"policy_loss": policy_loss}
