"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from reference.trainer.double import Double

Fn = Callable[..., Any]


def one_epsilon(original: Fn) -> Fn:
    """Bound above by ε_low too, where that is a legal bound."""

    def mistaken(settings: dict[str, Any]) -> Any:
        return original({**settings, "epsilon_high": settings["epsilon_low"]})

    return mistaken


def kl_without_ratio(original: Fn) -> Fn:
    """Leave the KL's ratio out."""
    return lambda step, reference, estimator, kl_ratio: original(step, reference, estimator, kl_ratio and "none")


def remembered(original: Fn) -> Fn:
    """Keep what the first call of a shape gave."""
    kept: dict[bytes, Any] = {}

    def mistaken(mask: Any, max_length: int) -> Any:
        return kept.setdefault(np.asarray(mask).tobytes(), original(mask, max_length))

    return mistaken


def clamped(original: Fn) -> Fn:
    """Clamp the log-ratio."""
    return lambda policy, old, *rest: original(old + np.clip(policy - old, -20.0, 20.0), old, *rest)


def where_multiplies(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole function
    """Select with MLX's own `where`."""
    return lambda mask, values: mx.where(mask, values, mx.zeros((), values.dtype))


def held_by_where(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole function
    """Hold with MLX's own `where`."""

    def hold(log_ratio: Any, gains: Any, epsilon_low: float, epsilon_high: float) -> Any:
        outside = mx.where(gains > 0, log_ratio.high > epsilon_high, log_ratio.high < -epsilon_low)
        bound = mx.where(gains > 0, epsilon_high, -epsilon_low)
        return Double(mx.where(outside, bound, log_ratio.high), mx.where(outside, 0.0, log_ratio.low))

    return hold
