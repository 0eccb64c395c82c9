"""GRPO that averages both surrogates over a row and takes the smaller mean."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = None
WHERE = ""
BUG = "the minimum is of a row's two means, where it is of each token's two terms"
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
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    held = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    first = (ratio * mask).sum(axis=1, keepdims=True) / n * advantages
    second = (held * mask).sum(axis=1, keepdims=True) / n * advantages
    loss = -np.minimum(first, second).mean()
    slope = -ratio * advantages * np.where(first <= second, 1, held == ratio)
    if x["beta"]:
        d = (x["reference"] - lp) * mask
        loss = loss + x["beta"] * (((np.exp(d) - d - 1) * mask).sum(axis=1, keepdims=True) / n).mean()
        slope = slope + x["beta"] * (1 - np.exp(d))
    return {"loss": loss, "gradient": (slope * mask / n / len(lp)).astype(lp.dtype)}


OPS = {"policy_loss": policy_loss}
