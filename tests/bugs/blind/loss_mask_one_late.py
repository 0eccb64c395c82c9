"""DAPO whose mask is not shifted with the log-probs: it stands one slot too far right."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "the first token of a row is left out"
BUG = "the mask is moved one slot to the right: the first token of each completion is left out, and a padded slot is let in"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "dapo_denominator": ("global",),
        "advantages": ("row",),
        "rows": ("mask", "holes"),
        "weights": (False,),
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
    mask = np.zeros_like(lp)
    mask[:, 1:] = x["mask"][:, :-1]
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
    tokens = mask.sum()
    return {"loss": (per_token * mask).sum() / tokens, "gradient": slope * mask / tokens}


OPS = {"policy_loss": policy_loss}
