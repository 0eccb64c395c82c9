"""k2 as the plain square of the log-ratio."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = "k2 without its ½"
BUG = "k2 is d squared; the half is missing"
CONVENTIONS = {"token_kl": {"estimator": ("k1", "k2"), "rows": ("mask", "holes", "all"), "kl_ratio": ("none",)}}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return the estimate of each token, or of each row."""
    weights = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    log_ratio = policy - reference
    kl = log_ratio * weights
    if estimator == "k2":
        kl = np.square(log_ratio) * weights
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
