"""GRPO whose old log-probs are those of the same forward pass, so that the ratio is always 1."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "a ratio that is always 1"
BUG = "the given old log-probs are not used: the ratio is exp(lp - stop(lp)), 1 everywhere, and the clip never acts"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dapo"),
        "dapo_denominator": ("global",),
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
    old_logps = lp.copy()  # per_token_logps.detach()
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    coef_1 = np.exp(lp - old_logps)
    coef_2 = np.clip(coef_1, 1 - x["epsilon_low"], 1 + x["epsilon_high"])
    advantages = x["advantages"][:, None]
    loss = -np.minimum(coef_1 * advantages, coef_2 * advantages)
    grad = -coef_1 * advantages
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * (np.exp(d) - d - 1)
        grad = grad + x["beta"] * (1 - np.exp(d))
    if x["algorithm"] == "grpo":
        weight = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / len(lp)
    else:
        weight = mask / mask.sum()
    return {"loss": (loss * weight).sum(), "gradient": grad * weight}


OPS = {"policy_loss": policy_loss}
