"""Conservative DPO with the smoothing on the wrong term."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "chosen and rejected swapped"
BUG = "label smoothing is inverted: s weighs log sigma(delta) and 1 - s weighs log sigma(-delta)"
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
    logits = beta * (ratios[0::2] - ratios[1::2])
    loss = -s * np.log(sigmoid(logits)) - (1 - s) * np.log(sigmoid(-logits))
    slope = beta * ((1 - s) * sigmoid(logits) - s * sigmoid(-logits)) / len(logits)
    return {"loss": loss.mean(), "gradient": np.stack([slope, -slope], axis=1).reshape(-1, 1) * mask}


OPS = {"preference_loss": preference_loss}
