"""GRPO with the clip's gradient by hand: the ratio is differentiated where the clip holds it too."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the loss as asked, its gradient that of: r·A without a clip"
BUG = "the loss is right; the gradient is -r A on every token, clipped or not, as if the clip were straight-through"
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
    clipped = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    loss = -np.minimum(ratio * advantages, clipped * advantages)
    slope = -ratio * advantages
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": ((loss * mask).sum(axis=1, keepdims=True) / n).mean(), "gradient": slope * mask / n / len(lp)}


OPS = {"policy_loss": policy_loss}
