"""DPO that takes the first half of the rows as chosen: the batch is interleaved."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "the first half of the rows taken as chosen, the second as rejected"
BUG = "the first P rows are taken for chosen and the last P for rejected, where chosen and rejected alternate"
CONVENTIONS = {"preference_loss": {"loss": ("dpo",)}}


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta, s = x["policy"], x["beta"], x["label_smoothing"]
    mask = x["mask"].astype(policy.dtype)
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    ratios = ((policy - ref) * mask).sum(axis=1)
    pairs = len(policy) // 2
    logits = beta * (ratios[:pairs] - ratios[pairs:])
    loss = -(1 - s) * np.log(sigmoid(logits)) - s * np.log(sigmoid(-logits))
    slope = beta * (s * sigmoid(logits) - (1 - s) * sigmoid(-logits)) / pairs
    return {"loss": loss.mean(), "gradient": np.concatenate([slope, -slope])[:, None] * mask}


OPS = {"preference_loss": preference_loss}
