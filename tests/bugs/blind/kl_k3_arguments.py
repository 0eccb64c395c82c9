"""k3 with its arguments exchanged: d is policy minus reference."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = "policy and reference exchanged"
BUG = "k3 takes d = policy - reference, the other divergence's estimate"
CONVENTIONS = {
    "token_kl": {"estimator": ("k3",), "rows": ("mask", "left-padded", "holes", "all"), "kl_ratio": ("none",)}
}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return k3 of each token, or of each row."""
    weights = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    d = policy - reference
    kl = (np.exp(d) - d - 1) * weights
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
