"""IPO whose target is 1/beta."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "target 1/β (asked: 1/(2β))"
BUG = "the squared distance is to 1/beta, where the target is 1/(2 beta)"
CONVENTIONS = {"preference_loss": {"loss": ("ipo",)}}


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy = x["policy"]
    mask = x["mask"].astype(policy.dtype)
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    counts = mask.sum(axis=1) if x["lengths"] == "mean" else np.ones(len(mask), policy.dtype)
    ratios = ((policy - ref) * mask).sum(axis=1) / counts
    off = ratios[0::2] - ratios[1::2] - 1 / x["beta"]
    slope = 2 * off / len(off)
    slopes = np.stack([slope, -slope], axis=1).reshape(-1) / counts
    return {"loss": (off**2).mean(), "gradient": slopes[:, None] * mask}


OPS = {"preference_loss": preference_loss}
