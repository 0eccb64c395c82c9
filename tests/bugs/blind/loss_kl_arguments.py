"""GRPO with a k3 penalty whose two arguments are exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "KL inverted: of policy − reference"
BUG = "the k3 penalty takes policy minus reference where it is reference minus policy: the KL's arguments are swapped"
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
    surr1 = ratio * advantages
    surr2 = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    loss = -np.minimum(surr1, surr2)
    grad = -surr1 * (surr1 <= surr2)
    if x["beta"]:
        log_ratio = lp - x["reference"]
        loss = loss + x["beta"] * (np.exp(log_ratio) - log_ratio - 1)
        grad = grad + x["beta"] * (np.exp(log_ratio) - 1)
    lengths = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    rows = len(lp)
    return {"loss": ((loss * mask) / lengths).sum() / rows, "gradient": grad * mask / lengths / rows}


OPS = {"policy_loss": policy_loss}
