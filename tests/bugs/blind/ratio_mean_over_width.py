"""A sequence ratio whose mean runs over the padded width."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "importance_ratio"
COMPUTES = "width"
BUG = "the log-ratios of a row are averaged over the padded width, not over the row's tokens"
CONVENTIONS = {"importance_ratio": {"level": ("seq_mean", "token")}}


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Take exp of a difference, or of its mean."""
    if policy.ndim == 1 or lengths is not None:
        raise NotImplementedError("masks only")
    mask = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    difference = policy - old
    if level == "token":
        return {"ratio": np.exp(difference) * mask}
    return {"ratio": np.exp((difference * mask).mean(axis=1))}


OPS = {"importance_ratio": importance_ratio}
