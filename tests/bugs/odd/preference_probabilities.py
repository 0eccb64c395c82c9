"""DPO on the difference of probabilities, not of log-probs: exp came too early."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "ratios compared, not log-ratios: exp(chosen) − exp(rejected)"
WHERE = ""
BUG = "the margin is beta (exp(mean log-ratio of the chosen) - exp(mean log-ratio of the rejected))"
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
    ratios = np.exp(((policy - ref) * mask).sum(axis=1) / counts)
    logits = beta * (ratios[0::2] - ratios[1::2])
    loss = -(1 - s) * np.log(sigmoid(logits)) - s * np.log(sigmoid(-logits))
    slope = beta * (s * sigmoid(logits) - (1 - s) * sigmoid(-logits)) / len(logits)
    slopes = np.stack([slope, -slope], axis=1).reshape(-1) * ratios / counts
    return {"loss": loss.mean(), "gradient": slopes[:, None] * mask}


OPS = {"preference_loss": preference_loss}
