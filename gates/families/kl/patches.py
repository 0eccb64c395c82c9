"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def reversed_arguments(original: Fn) -> Fn:
    """Sum q (log q - log p)."""
    return lambda policy, reference: original(reference, policy)


def unweighted(original: Fn) -> Fn:
    """Average log p - log q over the vocabulary instead of under p."""
    del original

    def mistaken(policy: Any, reference: Any) -> Any:
        possible = policy > -np.inf
        return float(np.mean(policy[possible] - reference[possible]))

    return mistaken


def float32_divergence(original: Fn) -> Fn:
    """Add up the terms one after the other in float32."""
    del original

    def mistaken(policy: Any, reference: Any) -> Any:
        possible = policy > -np.inf
        ours, theirs = policy[possible], reference[possible]
        return float(np.add.accumulate((np.exp(ours) * (ours - theirs)).astype(np.float32))[-1])

    return mistaken


def expm1_minus_d(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Compute k3 as expm1(d) − d, which cancels for small d."""
    return lambda d: np.expm1(d) - d


def inverted(original: Fn) -> Fn:
    """Swap policy and reference in an estimator."""
    return lambda d: original(-d)


def swapped_arguments(original: Fn) -> Fn:
    """Swap policy and reference in the call."""

    def mistaken(policy: Any, reference: Any, **rest: Any) -> Any:
        return original(reference, policy, **rest)

    return mistaken


def without_half(original: Fn) -> Fn:
    """Forget the half of k2."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        return 2 * original(*arguments, **rest)

    return mistaken


def swapped_levels(original: Fn) -> Fn:
    """Weight a token's estimate by its sequence's ratio, and the other way round."""
    other = {"token": "sequence", "sequence": "token"}

    def mistaken(*arguments: Any) -> Any:
        *rest, level = arguments
        return original(*rest, other[level])

    return mistaken


def inverted_ratio(original: Fn) -> Fn:
    """Weight by exp(old - policy)."""

    def mistaken(policy: Any, old: Any, *rest: Any) -> Any:
        return original(old, policy, *rest)

    return mistaken


def no_ratio(original: Fn) -> Fn:
    """Weight by 1 whatever was asked for."""
    return lambda *arguments: np.ones_like(original(*arguments))


def padded_mean(original: Fn) -> Fn:
    """Divide the log ratio of a sequence by the width of the batch, its padding included."""

    def mistaken(policy: Any, old: Any, valid: Any, *rest: Any) -> Any:
        return original(policy, old, np.ones_like(valid), *rest)

    return mistaken
