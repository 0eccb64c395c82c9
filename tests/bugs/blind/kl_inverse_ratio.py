"""The KL corrected by exp(old - policy): the ratio is upside down."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = "ratio inverted, exp(old − policy)"
BUG = "the token ratio that weighs each estimate is exp(old - policy), the inverse of what it should be"
CONVENTIONS = {"token_kl": {"kl_ratio": ("token",), "rows": ("mask", "holes", "all")}}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return the weighted estimate of each token, or of each row."""
    weights = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    d = reference - policy
    kl = {"k1": -d, "k2": 0.5 * d**2, "k3": np.exp(d) - d - 1}[estimator]
    if old is not None:
        kl = kl * np.exp(old - policy)
    kl = kl * weights
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
