"""SimPO with its margin inside beta."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "the margin γ multiplied by β"
BUG = "the margin is multiplied by beta: sigma of beta (lp_c - lp_r - gamma) in place of beta (lp_c - lp_r) - gamma"
CONVENTIONS = {"preference_loss": {"loss": ("simpo",)}}


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta = x["policy"], x["beta"]
    mask = x["mask"].astype(policy.dtype)
    counts = mask.sum(axis=1)
    logps = (policy * mask).sum(axis=1) / counts
    logits = beta * (logps[0::2] - logps[1::2] - x["margin"])
    loss = np.log1p(np.exp(-logits))
    slope = -beta / (1 + np.exp(logits)) / len(logits)
    slopes = np.stack([slope, -slope], axis=1).reshape(-1) / counts
    return {"loss": loss.mean(), "gradient": slopes[:, None] * mask}


OPS = {"preference_loss": preference_loss}
