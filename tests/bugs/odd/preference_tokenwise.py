"""DPO token by token: the t-th tokens of both completions are compared, and the losses averaged."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = None
WHERE = ""
BUG = "log sigma is taken of each position's difference and averaged over the positions, not of the sequences' sums"
CONVENTIONS = {"preference_loss": {"loss": ("dpo",)}}


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta, s = x["policy"], x["beta"], x["label_smoothing"]
    mask = x["mask"].astype(policy.dtype)
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    ratios = (policy - ref) * mask
    logits = beta * (ratios[0::2] - ratios[1::2])
    loss = -(1 - s) * np.log(sigmoid(logits)) - s * np.log(sigmoid(-logits))
    slope = beta * (s * sigmoid(logits) - (1 - s) * sigmoid(-logits)) / logits.size
    gradient = np.empty_like(policy)
    gradient[0::2], gradient[1::2] = slope, -slope
    return {"loss": loss.mean(), "gradient": gradient * mask}


OPS = {"preference_loss": preference_loss}
