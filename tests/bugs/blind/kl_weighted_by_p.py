"""k1 multiplied by the token's probability, as in the sum over the vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = "the sampled token weighed by its probability again"
BUG = "the estimate of a sampled token is multiplied by its probability again: exp(lp) (lp - ref)"
CONVENTIONS = {"token_kl": {"estimator": ("k1",), "rows": ("mask", "holes", "all"), "kl_ratio": ("none",)}}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return p (log p - log q) of each token, or of each row."""
    weights = np.ones_like(policy) if mask is None else mask.astype(policy.dtype)
    kl = np.exp(policy) * (policy - reference) * weights
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
