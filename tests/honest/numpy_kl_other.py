"""Plain NumPy programs of the KL in other forms: expm1(d) − d, a loop over rows, cross-entropy minus entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"token_kl": {"kl_clamp": (None, 10.0)}}


def _row(policy: Any, reference: Any, old: Any, estimator: Any, kl_ratio: Any, kl_clamp: Any) -> Any:
    log_ratio = policy - reference
    if estimator == "k1":
        kl = log_ratio
    elif estimator == "k2":
        kl = 0.5 * np.square(log_ratio)
    else:
        kl = np.expm1(-log_ratio) + log_ratio
    if kl_clamp is not None:
        kl = np.minimum(np.maximum(kl, -kl_clamp), kl_clamp)
    if old is not None and kl_ratio == "token":
        kl = np.exp(policy - old) * kl
    if old is not None and kl_ratio == "sequence" and len(kl):
        kl = np.exp(np.mean(policy - old)) * kl
    return kl


def token_kl(
    *,
    policy: Any,
    reference: Any,
    estimator: Any,
    mask: Any,
    lengths: Any,
    reduction: Any,
    old: Any,
    kl_ratio: Any,
    kl_clamp: Any = None,
) -> Any:
    if policy.ndim == 1:
        ends = np.cumsum([len(policy)] if lengths is None else lengths)
        starts = np.concatenate([[0], ends[:-1]])
        chosen = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
        arrays = [(policy[i], reference[i], None if old is None else old[i]) for i in chosen]
    else:
        if lengths is not None:
            mask = np.arange(policy.shape[1])[None] < lengths[:, None]
        mask = np.ones(policy.shape, bool) if mask is None else mask
        arrays = [(policy[b][m], reference[b][m], None if old is None else old[b][m]) for b, m in enumerate(mask)]
    rows = [_row(p, r, o, estimator, kl_ratio, kl_clamp) for p, r, o in arrays]
    if reduction == "none":
        if policy.ndim == 1:
            return {"kl": np.concatenate(rows)}
        kl = np.zeros_like(policy)
        kl[mask] = np.concatenate(rows)
        return {"kl": kl}
    sums = np.array([np.sum(row) for row in rows], policy.dtype)
    return {"kl": sums if reduction == "sum" else sums / np.array([max(len(row), 1) for row in rows])}


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> Any:
    p = np.exp(policy_logprobs)
    return {"kl": np.sum(p * policy_logprobs, -1) - np.sum(p * reference_logprobs, -1)}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
