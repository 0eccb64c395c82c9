"""The KL as MLX trainers write it; float64 on the CPU stream.

Its arithmetic is declared as float32: exp of a float64 array has a relative error of 2e-7 in MLX 0.32.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "token_kl": {"kl_clamp": (None, 10.0), "arithmetic": ("float32",)},
    "full_kl": {"arithmetic": ("float32",)},
}


def _array(values: Any) -> Any:
    if values is None:
        return None
    return mx.array(np.asarray(values), dtype=mx.float64 if values.dtype == np.float64 else mx.float32)


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
        parts = [len(policy)] if lengths is None else lengths.tolist()
        ends = np.cumsum(parts).tolist()
        rows = [
            token_kl(
                policy=policy[None, end - n : end],
                reference=reference[None, end - n : end],
                estimator=estimator,
                mask=None,
                lengths=None,
                reduction=reduction,
                old=None if old is None else old[None, end - n : end],
                kl_ratio=kl_ratio,
                kl_clamp=kl_clamp,
            )["kl"].reshape(-1)
            for n, end in zip(parts, ends, strict=True)
        ]
        return {"kl": np.concatenate(rows)}
    if lengths is not None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    mask = np.ones(policy.shape, bool) if mask is None else mask
    policy, reference, old = _array(policy), _array(reference), _array(old)
    mask = mx.array(mask).astype(policy.dtype)
    diff = reference - policy
    kl = {"k1": lambda: -diff, "k2": lambda: mx.square(diff) / 2, "k3": lambda: mx.exp(diff) - diff - 1}[estimator]()
    if kl_clamp is not None:
        kl = mx.clip(kl, -kl_clamp, kl_clamp)
    if old is not None and kl_ratio == "token":
        kl = kl * mx.exp(policy - old)
    if old is not None and kl_ratio == "sequence":
        kl = kl * mx.exp(((policy - old) * mask).sum(axis=1, keepdims=True) / mask.sum(axis=1, keepdims=True))
    kl = kl * mask
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.sum(axis=1) / mx.maximum(mask.sum(axis=1), 1.0)
    return {"kl": np.array(kl)}


def full_kl(*, policy_logprobs: Any, reference_logprobs: Any) -> Any:
    lp, ref = _array(policy_logprobs), _array(reference_logprobs)
    return {"kl": np.array(mx.sum(mx.exp(lp) * (lp - ref), axis=-1))}


OPS = {"token_kl": token_kl, "full_kl": full_kl}
