"""DPO that sums over every token up to the end of the completion: the prompt is scored too."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "the prompt counted"
BUG = "log-probs are summed over prompt and completion, with the attention mask in place of the completion mask"
CONVENTIONS = {"preference_loss": {"loss": ("dpo",), "rows": ("mask",)}}


def log_sigmoid(x: Any) -> Any:
    """Return log of the logistic function."""
    return -np.logaddexp(0, -x)


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta, s = x["policy"], x["beta"], x["label_smoothing"]
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    attention = np.flip(np.logical_or.accumulate(np.flip(x["mask"], axis=1), axis=1), axis=1)
    ratios = np.where(attention, policy - ref, 0).sum(axis=1)
    logits = beta * (ratios[0::2] - ratios[1::2])
    loss = -(1 - s) * log_sigmoid(logits) - s * log_sigmoid(-logits)
    slope = beta * (s * np.exp(log_sigmoid(logits)) - (1 - s) * np.exp(log_sigmoid(-logits))) / len(logits)
    return {"loss": loss.mean(), "gradient": np.stack([slope, -slope], axis=1).reshape(-1, 1) * attention}


OPS = {"preference_loss": preference_loss}
