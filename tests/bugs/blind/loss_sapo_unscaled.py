"""SAPO without the factor 4/tau before its sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the gate without its factor 4/τ"
BUG = "the soft gate is sigmoid(tau (r - 1)) alone; the factor 4/tau, which makes its slope 1 at r = 1, is missing"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("sapo",),
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
    advantages = x["advantages"][:, None]
    positive, negative = x["sapo_temperature_positive"], x["sapo_temperature_negative"]
    tau = np.where(advantages > 0, positive, negative).astype(lp.dtype)
    ratio = np.exp(lp - old)
    gate = 1 / (1 + np.exp(-tau * (ratio - 1)))
    loss = -gate * advantages
    slope = -tau * gate * (1 - gate) * ratio * advantages
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    weight = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / len(lp)
    return {"loss": (loss * weight).sum(), "gradient": slope * weight}


OPS = {"policy_loss": policy_loss}
