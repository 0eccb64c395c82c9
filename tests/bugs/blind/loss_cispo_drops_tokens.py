"""CISPO that masks tokens beyond its cap, as PPO's clip would."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "tokens beyond the cap left out"
BUG = "tokens whose ratio is above the cap are dropped: they have no loss and no gradient, where they should weigh the cap"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "dapo_denominator": ("global",),
        "cispo_bound": ("relative",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None or x["cispo_bound"] != "relative" or x["dapo_denominator"] != "global":
        raise NotImplementedError("no dual clip, one bound, one denominator")
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    ratio = np.exp(lp - old)
    weight = np.where(ratio > 1 + x["epsilon_high"], 0, ratio)
    slope = -weight * x["advantages"][:, None]
    loss = slope * lp
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    tokens = np.maximum(mask.sum(), 1)
    return {"loss": (loss * mask).sum() / tokens, "gradient": slope * mask / tokens}


OPS = {"policy_loss": policy_loss}
