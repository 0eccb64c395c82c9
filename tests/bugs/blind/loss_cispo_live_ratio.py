"""CISPO without the stop-gradient on its weight."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "a capped ratio that has a gradient"
BUG = "the loss is right; the gradient also flows through the ratio, because min(r, c) is not detached"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "weights": (False,),
        "dapo_denominator": ("global",),
        "cispo_bound": ("relative", "absolute"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["delta"] is not None or x["dapo_denominator"] != "global":
        raise NotImplementedError("no dual clip, one denominator")
    lp = x["policy"]
    old = lp if x["old"] is None else x["old"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    advantages = x["advantages"][:, None]
    cap = x["epsilon_high"] + (1 if x["cispo_bound"] == "relative" else 0)
    ratio = np.exp(lp - old)
    weight = np.minimum(ratio, cap)
    loss = -weight * advantages * lp
    slope = -weight * advantages - np.where(ratio <= cap, ratio, 0) * advantages * lp
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        slope = slope + x["beta"] * (1 - np.exp(d))
    tokens = np.maximum(mask.sum(), 1)
    return {"loss": (loss * mask).sum() / tokens, "gradient": slope * mask / tokens}


OPS = {"policy_loss": policy_loss}
