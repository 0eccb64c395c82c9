"""RLOO as plain REINFORCE: the log-probability of the completion times its advantage, and no ratio."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "policy_loss"
COMPUTES = "A·log π without a ratio (REINFORCE)"
BUG = "the loss is -A times the summed log-prob: the importance ratio of the sequence is missing"
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("rloo",),
        "advantages": ("row",),
        "rows": ("mask", "holes", "all"),
        "clipped": (False,),
        "weights": (False,),
    }
}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    if x["epsilon_low"] is not None or x["delta"] is not None:
        raise NotImplementedError("no clip")
    lp = x["policy"]
    mask = np.ones_like(lp) if x["mask"] is None else x["mask"].astype(lp.dtype)
    logprobs = (lp * mask).sum(axis=1)
    loss = -(x["advantages"] * logprobs).mean()
    return {"loss": loss, "gradient": -x["advantages"][:, None] * mask / len(lp)}


OPS = {"policy_loss": policy_loss}
