"""GMPO that holds the log-ratio on both sides whatever the sign of the advantage."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "both bounds on every log-ratio"
BUG = (
    "every token's log-ratio is clamped to [-epsilon_low, epsilon_high]; the advantage's sign does not choose the side"
)
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
    advantages, rows = x["advantages"][:, None], len(lp)
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    log_ratio = lp - old
    held = np.clip(log_ratio, -x["epsilon_low"], x["epsilon_high"])
    ratio = np.exp((held * mask).sum(axis=1, keepdims=True) / n)
    loss = -(ratio * advantages).mean()
    gradient = -ratio * advantages * (held == log_ratio) * mask / n / rows
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (((np.exp(d) - d - 1) * mask).sum(axis=1, keepdims=True) / n).mean()
        gradient = gradient + x["beta"] * (1 - np.exp(d)) * mask / n / rows
    return {"loss": loss, "gradient": gradient.astype(lp.dtype)}


OPS = {"policy_loss": policy_loss}
