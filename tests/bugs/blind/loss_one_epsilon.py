"""DAPO whose epsilon_high is read from the configuration and never reaches the clip."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "ε_low on both sides of the clip"
BUG = "epsilon_low is used for both bounds of the clip; epsilon_high is ignored"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global", "trl"),
        "kl_estimator": ("k3", "k1"),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None:
        raise NotImplementedError("no dual clip")
    eps = x["epsilon_low"]
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    first, second = ratio * advantages, np.clip(ratio, 1 - eps, 1 + eps) * advantages
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["weights"] is not None:
        weights = x["weights"] if x["weights"].ndim == 2 else x["weights"][:, None]
        loss, slope = loss * weights, slope * weights
    if x["beta"]:
        d = x["reference"] - lp
        k3 = x["kl_estimator"] == "k3"
        loss = loss + x["beta"] * (np.exp(d) - d - 1 if k3 else -d)
        slope = slope + x["beta"] * (1 - np.exp(d) if k3 else 1)
    tokens = x["tokens_in_step"] if x["dapo_denominator"] == "trl" else mask.sum()
    return {"loss": (loss * mask).sum() / tokens, "gradient": slope * mask / lp.dtype.type(tokens)}


OPS = {"policy_loss": policy_loss}
