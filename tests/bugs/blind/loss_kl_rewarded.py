"""GRPO that subtracts its KL from the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the KL with the wrong sign"
BUG = "beta times the KL is subtracted from the loss where it should be added: distance from the reference is rewarded"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None or x.get("kl_clamp") is not None:
        raise NotImplementedError("no dual clip, no clamp of the KL")
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    first = ratio * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    objective, slope = np.minimum(first, second), np.where(first <= second, first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        kl, pull = {
            "k1": (-d, np.ones_like(d)),
            "k2": (d**2 / 2, -d),
            "k3": (np.exp(d) - d - 1, 1 - np.exp(d)),
        }[x["kl_estimator"]]
        objective = objective + x["beta"] * kl
        slope = slope + x["beta"] * pull
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": -(objective * mask / n).sum() / len(lp), "gradient": -slope * mask / n / len(lp)}


OPS = {"policy_loss": policy_loss}
