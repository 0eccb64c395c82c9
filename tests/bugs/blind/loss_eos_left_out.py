"""GRPO whose mask ends one token early: the end-of-sequence token is not trained."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the last token of a row is left out"
BUG = "the last token of every completion, the end-of-sequence token, is masked out of the loss and of the count"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "advantages": ("row",),
        "rows": ("mask",),
        "weights": (False,),
        "empty_rows": (False,),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None or x["mask"] is None:
        raise NotImplementedError("no dual clip, and a mask is needed")
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    lengths = x["mask"].sum(axis=1)
    mask = (np.arange(lp.shape[1]) < lengths[:, None] - 1).astype(lp.dtype)
    advantages = x["advantages"][:, None]
    ratio = np.exp(lp - old)
    first = ratio * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    per_token = -np.minimum(first, second)
    slope = np.where(first <= second, -first, 0)
    if x["beta"]:
        d = x["reference"] - lp
        per_token = per_token + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return {"loss": ((per_token * mask).sum(axis=1, keepdims=True) / n).mean(), "gradient": slope * mask / n / len(lp)}


OPS = {"policy_loss": policy_loss}
