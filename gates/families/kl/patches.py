"""Mutations of the estimators of the KL; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def reversed_arguments(original: Fn, policy: Any, reference: Any) -> Any:
    """Sum q (log q - log p)."""
    return original(reference, policy)


@mutation
def unweighted(_original: Fn, policy: Any, reference: Any) -> Any:
    """Average log p - log q over the vocabulary instead of under p."""
    possible = policy > -np.inf
    return float(np.mean(policy[possible] - reference[possible]))


@mutation
def float32_divergence(_original: Fn, policy: Any, reference: Any) -> Any:
    """Add up the terms one after the other in float32."""
    possible = policy > -np.inf
    left, right = policy[possible], reference[possible]
    return float(np.add.accumulate((np.exp(left) * (left - right)).astype(np.float32))[-1])


@mutation
def expm1_minus_d(_original: Fn, d: Any) -> Any:
    """Compute k3 as expm1(d) − d, which cancels for small d."""
    return np.expm1(d) - d


@mutation
def inverted(original: Fn, d: Any) -> Any:
    """Swap policy and reference in an estimator."""
    return original(-d)


@mutation
def swapped_arguments(original: Fn, policy: Any, reference: Any, **rest: Any) -> Any:
    """Swap policy and reference in the call."""
    return original(reference, policy, **rest)


@mutation
def without_half(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Forget the half of k2."""
    return 2 * original(*arguments, **rest)


@mutation
def clamped_below(_original: Fn, values: Any, most: Any) -> Any:
    """Bound the estimates from below only."""
    return values if most is None else np.maximum(values, -most)


@mutation
def swapped_levels(original: Fn, *arguments: Any) -> Any:
    """Weight a token's estimate by its sequence's ratio, and the other way round."""
    other = {"token": "sequence", "sequence": "token"}
    *rest, level = arguments
    return original(*rest, other[level])


@mutation
def inverted_ratio(original: Fn, policy: Any, old: Any, *rest: Any) -> Any:
    """Weight by exp(old - policy)."""
    return original(old, policy, *rest)


@mutation
def no_ratio(original: Fn, *arguments: Any) -> Any:
    """Weight by 1 whatever was asked for."""
    return np.ones_like(original(*arguments))


@mutation
def padded_mean(original: Fn, policy: Any, old: Any, valid: Any, *rest: Any) -> Any:
    """Divide the log ratio of a sequence by the width of the batch, its padding included."""
    return original(policy, old, np.ones_like(valid), *rest)
