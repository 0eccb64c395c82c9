"""GRPO that whitens the advantages of the batch once more inside the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "advantages normalised over the batch once more"
BUG = "the given advantages are normalised over the batch, (A - mean) / (std + 1e-8), before they are used"
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
    advantages = x["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    advantages = advantages[:, None]
    ratio = np.exp(lp - old)
    first = ratio * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": ((loss * mask).sum(axis=1, keepdims=True) / n).mean(), "gradient": slope * mask / n / len(lp)}


OPS = {"policy_loss": policy_loss}
