"""GSPO's ratio as the plain mean of the token ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "importance_ratio"
COMPUTES = "mean of"
BUG = "the sequence ratio is the arithmetic mean of the token ratios, where it is their geometric mean"
CONVENTIONS = {"importance_ratio": {"level": ("seq_mean",)}}


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Average the ratios of the tokens."""
    if policy.ndim == 1 or lengths is not None:
        raise NotImplementedError("masks only")
    mask = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    ratios = np.exp(policy - old) * mask
    return {"ratio": ratios.sum(axis=1) / np.maximum(mask.sum(axis=1), 1)}


OPS = {"importance_ratio": importance_ratio}
