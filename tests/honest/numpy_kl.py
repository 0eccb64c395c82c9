"""Plain NumPy programs of the KL, in the dtype of the data: k3 as exp(d) − d − 1."""

from __future__ import annotations

from typing import Any

import numpy as np

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"token_kl": {"kl_clamp": (None, 10.0)}}


def _estimate(d: Any, estimator: Any) -> Any:
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d**2 / 2
    return np.exp(d) - d - 1


def token_kl(  # noqa: C901  as one function, as people write it
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
    flat = policy.ndim == 1
    if flat:
        lengths = np.array([len(policy)]) if lengths is None else lengths
        ends = np.cumsum(lengths)
        rows = [slice(end - n, end) for end, n in zip(ends, lengths, strict=True)]
    kl = _estimate(reference - policy, estimator)
    if kl_clamp is not None:
        kl = np.clip(kl, -kl_clamp, kl_clamp)
    if flat:
        if old is not None and kl_ratio == "token":
            kl = kl * np.exp(policy - old)
        if old is not None and kl_ratio == "sequence":
            ratio = np.concatenate([np.full(r.stop - r.start, np.exp(np.mean((policy - old)[r]))) for r in rows])
            kl = kl * ratio.astype(kl.dtype)
        if reduction == "none":
            return {"kl": kl}
        total = np.sum if reduction == "sum" else np.mean
        return {"kl": np.array([total(kl[r]) for r in rows])}
    if lengths is not None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    mask = np.ones(policy.shape, policy.dtype) if mask is None else mask.astype(policy.dtype)
    if old is not None and kl_ratio == "token":
        kl = kl * np.exp(policy - old)
    if old is not None and kl_ratio == "sequence":
        kl = kl * np.exp(((policy - old) * mask).sum(1) / mask.sum(1))[:, None]
    kl = kl * mask
    if reduction == "none":
        return {"kl": kl}
    return {"kl": kl.sum(1) if reduction == "sum" else kl.sum(1) / mask.sum(1)}


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> Any:
    return {"kl": np.sum(np.exp(policy_logprobs) * (policy_logprobs - reference_logprobs), axis=-1)}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
