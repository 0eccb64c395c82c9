"""Dr. GRPO that adds the KL as a mean over all tokens, beside a policy part that is divided by a constant."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "KL averaged otherwise than the policy term: token mean over the step"
BUG = "the KL is averaged over all tokens of the batch, whereas it should have the policy part's constant denominator"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dr_grpo",),
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
    first = ratio * advantages
    second = np.clip(ratio, 1 - x["epsilon_low"], 1 + x["epsilon_high"]) * advantages
    constant = lp.dtype.type(len(lp) * x["max_length"])
    loss = (-np.minimum(first, second) * mask).sum() / constant
    gradient = np.where(first <= second, -first, 0) * mask / constant
    if x["beta"]:
        d = x["reference"] - lp
        loss = loss + x["beta"] * ((np.exp(d) - d - 1) * mask).sum() / mask.sum()
        gradient = gradient + x["beta"] * (1 - np.exp(d)) * mask / mask.sum()
    return {"loss": loss, "gradient": gradient}


OPS = {"policy_loss": policy_loss}
