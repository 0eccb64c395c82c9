"""CPO whose likelihood is the mean over completions of each one's own token mean."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "the mean over pairs of each chosen completion's mean"
BUG = "the NLL term averages each chosen completion over its tokens first, where it is one mean over all chosen tokens"
CONVENTIONS = {"preference_loss": {"loss": ("cpo",)}}


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta = x["policy"], x["beta"]
    mask = x["mask"].astype(policy.dtype)
    counts, sums = mask.sum(axis=1), (policy * mask).sum(axis=1)
    logits = beta * (sums[0::2] - sums[1::2])
    pairs = len(logits)
    nll = -(sums[0::2] / counts[0::2]).mean()
    loss = np.log1p(np.exp(-logits)).mean() + x["nll"] * nll
    slope = -beta / (1 + np.exp(logits)) / pairs
    gradient = np.stack([slope, -slope], axis=1).reshape(-1, 1) * mask
    gradient[0::2] -= (x["nll"] / counts[0::2, None] / pairs).astype(policy.dtype) * mask[0::2]
    return {"loss": loss, "gradient": gradient}


OPS = {"preference_loss": preference_loss}
