"""The NumPy baseline's sampled KL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments, ratio, terms

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def token_kl(  # noqa: PLR0913  the op's keywords
    policy: Array,
    reference: Array,
    *,
    estimator: str = "k3",
    mask: Array | None = None,
    lengths: Array | None = None,
    reduction: str = "none",
    old: Array | None = None,
    kl_ratio: str = "none",
    kl_clamp: float | None = None,
) -> Array:
    """Sampled KL(policy || reference) per token, or its sum or mean per sequence, with d = reference - policy."""
    arguments.one_of("kl_ratio", kl_ratio, ("none", "token", "sequence"))
    arguments.one_of("estimator", estimator, ("k1", "k2", "k3"))
    arguments.one_of("reduction", reduction, ("none", "sum", "mean"))
    shape = np.shape(policy)
    if len(shape) == 1 and lengths is None and mask is None:
        if reduction != "none" or kl_ratio == "sequence":
            raise ValueError("`lengths` is None, must say where the sequences of a 1-D array end")
        lengths = np.array(shape)
    where = terms.slots(shape, mask, lengths)
    left, right = (
        terms.select(where.wide(name, x), where.valid) for name, x in (("policy", policy), ("reference", reference))
    )
    high, low = terms.difference(right, left)
    with np.errstate(over="ignore", invalid="ignore"):
        if estimator == "k1":
            values = 0.0 - high
        elif estimator == "k2":
            values = 0.5 * high * high
        else:
            value = terms.k3(high)
            values = value + np.where(np.isfinite(value), np.expm1(high), 0.0) * low
        values = clamped(values, kl_clamp)
        if old is not None and kl_ratio != "none":
            values = values * kl_weights(left, terms.select(where.wide("old", old), where.valid), where.valid, kl_ratio)
        if reduction == "none":
            return where.narrow(values, policy)
        sums, counts = values.sum(axis=1), where.valid.sum(axis=1)
    return arguments.narrow(sums / np.maximum(counts, 1) if reduction == "mean" else sums, policy)


def clamped(values: Array, most: float | None) -> Array:
    """Return the estimates clipped to [-most, most], or unchanged without a bound."""
    return values if most is None else np.clip(values, -most, most)


def kl_weights(policy: Array, old: Array, valid: Array, kl_ratio: str) -> Array:
    """Return exp(policy - old) of each token, or of the mean over the tokens of its sequence (B, 1)."""
    if kl_ratio == "sequence":
        return ratio.sequence_ratio(policy, old, valid.sum(axis=1, keepdims=True))
    return ratio.token_ratio(policy, old)
