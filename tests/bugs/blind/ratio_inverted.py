"""Ratios upside down: exp(old - policy)."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "importance_ratio"
COMPUTES = "invert"
BUG = "the ratio is old over policy, the inverse of what it should be"


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Take exp of a difference, of its masked mean, or of its masked sum."""
    if policy.ndim == 1:
        raise NotImplementedError("rows only")
    if lengths is not None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    mask = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    difference = old - policy
    if level == "token":
        return {"ratio": np.exp(difference) * mask}
    total = (difference * mask).sum(axis=1)
    if level == "seq_mean":
        total = total / np.maximum(mask.sum(axis=1), 1)
    return {"ratio": np.exp(total)}


OPS = {"importance_ratio": importance_ratio}
