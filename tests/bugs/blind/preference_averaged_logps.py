"""DPO on the mean log-prob of each completion: `average_log_prob=True` was left on."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "log-ratios averaged over each completion's tokens"
BUG = "log-ratios are averaged over each completion's tokens, not summed"
CONVENTIONS = {"preference_loss": {"loss": ("dpo",)}}


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta, s = x["policy"], x["beta"], x["label_smoothing"]
    mask = x["mask"].astype(policy.dtype)
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    counts = mask.sum(axis=1)
    logps, ref_logps = (policy * mask).sum(axis=1) / counts, (ref * mask).sum(axis=1) / counts
    logits = beta * ((logps[0::2] - logps[1::2]) - (ref_logps[0::2] - ref_logps[1::2]))
    loss = -(1 - s) * np.log(sigmoid(logits)) - s * np.log(sigmoid(-logits))
    slope = beta * (s * sigmoid(logits) - (1 - s) * sigmoid(-logits)) / len(logits)
    slopes = np.stack([slope, -slope], axis=1).reshape(-1) / counts
    return {"loss": loss.mean(), "gradient": slopes[:, None] * mask}


OPS = {"preference_loss": preference_loss}
