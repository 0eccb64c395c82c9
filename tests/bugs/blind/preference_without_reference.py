"""DPO that loads a reference model and never subtracts its log-probs."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "the reference ignored"
BUG = "the reference's log-probs are ignored: the margin is beta (lp_c - lp_r)"
CONVENTIONS = {"preference_loss": {"loss": ("dpo", "hinge")}}


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta = x["policy"], x["beta"]
    mask = x["mask"].astype(policy.dtype)
    logps = (policy * mask).sum(axis=1)
    logits = beta * (logps[0::2] - logps[1::2])
    if x["loss"] == "dpo":
        s = x["label_smoothing"]
        loss = -(1 - s) * np.log(sigmoid(logits)) - s * np.log(sigmoid(-logits))
        slope = beta * (s * sigmoid(logits) - (1 - s) * sigmoid(-logits)) / len(logits)
    else:
        loss = np.maximum(0, 1 - logits)
        slope = np.where(logits < 1, -beta, 0.0).astype(policy.dtype) / len(logits)
    return {"loss": loss.mean(), "gradient": np.stack([slope, -slope], axis=1).reshape(-1, 1) * mask}


OPS = {"preference_loss": preference_loss}
