"""Advantages whose mean and deviation are over the tokens of a batch, as in REINFORCE++: each row counts for its tokens."""

from __future__ import annotations

import numpy as np

from gates.model import Array

MOST = 1 << 22  # tokens, since they are repeated at once


def centred(rewards: Array, baseline: str) -> tuple[Array, float]:
    """Return rewards less the mean of their prompt if that is the baseline, (P, G), and their relative rounding."""
    if baseline != "mean":
        return rewards, 0.0
    eps = float(np.finfo(rewards.dtype).eps)
    wide = rewards.astype(np.float64)
    off = wide - np.nanmean(wide, axis=1, keepdims=True)
    spread = float(np.nanstd(off)) or 1.0
    return off.astype(rewards.dtype), 4.0 * eps * (1.0 + rewards.shape[1] * float(np.nanmax(np.abs(wide))) / spread)


def of_first(values: Array, trained: Array, tokens: Array) -> Array:
    """Return the value of each row's first token, (P·G,), 0 for rows without tokens."""
    counts = np.where(trained, tokens, 0).reshape(-1)
    result = np.zeros(counts.shape)
    present = counts > 0
    result[present] = values[(np.cumsum(counts) - counts)[present]]
    return result
