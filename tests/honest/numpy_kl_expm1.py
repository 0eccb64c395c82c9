"""KL estimators with expm1 and halves of squares, their masked means, and the full KL by einsum, in NumPy.

gates check kl --subject tests/honest/numpy_kl_expm1.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def estimate(log_ratio: Any, estimator: str) -> Any:
    """Return the estimate from log π − log π_ref."""
    if estimator == "k2":
        return log_ratio**2 / 2
    return np.expm1(-log_ratio) + log_ratio


def token_kl(
    *, policy: Any, reference: Any, estimator: str, mask: Any = None, reduction: str = "none"
) -> dict[str, Any]:
    """Return the estimate of each token, or its masked sum or mean over each completion."""
    keep = np.ones(policy.shape) if mask is None else mask.astype(policy.dtype)
    kl = estimate(policy - reference, estimator) * keep
    if reduction == "none":
        return {"kl": kl}
    total = np.einsum("bt->b", kl)
    return {"kl": total if reduction == "sum" else total / np.maximum(keep.sum(axis=1), 1)}


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> dict[str, Any]:
    """Return Σ p (log p − log q) where p is above 0."""
    p = np.exp(policy_logprobs)
    with np.errstate(invalid="ignore"):
        apart = np.where(p > 0, policy_logprobs - reference_logprobs, 0)
    return {"kl": np.einsum("...v,...v->...", p, apart)}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
CONVENTIONS = {"token_kl": {"estimator": ("k2", "k3"), "kl_ratio": ("none",)}}
