"""Mutations of the settings of losses and of their ends; loaded in workers only."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from reference.trainer.double import Double


@mutation
def one_epsilon(original: Fn, settings: dict[str, Any]) -> Any:
    """Bound above by ε_low too, where that is a legal bound."""
    return original({**settings, "epsilon_high": settings["epsilon_low"]})


@mutation
def kl_without_ratio(original: Fn, step: Any, reference: Any, estimator: Any, kl_ratio: Any, *rest: Any) -> Any:
    """Leave the KL's ratio out."""
    return original(step, reference, estimator, kl_ratio and "none", *rest)


def remembered(original: Fn) -> Fn:
    """Keep what the first call of a shape gave."""
    kept: dict[bytes, Any] = {}

    def mistaken(mask: Any, max_length: int) -> Any:
        return kept.setdefault(np.asarray(mask).tobytes(), original(mask, max_length))

    return mistaken


@mutation
def clamped(original: Fn, policy: Any, old: Any, *rest: Any) -> Any:
    """Clamp the log-ratio."""
    return original(old + np.clip(policy - old, -20.0, 20.0), old, *rest)


@mutation
def where_multiplies(_original: Fn, mask: Any, values: Any) -> Any:
    """Select with MLX's own `where`."""
    return mx.where(mask, values, mx.zeros((), values.dtype))


@mutation
def held_by_where(_original: Fn, log_ratio: Any, advantages: Any, epsilon_low: float, epsilon_high: float) -> Any:
    """Hold with MLX's own `where`."""
    outside = mx.where(advantages > 0, log_ratio.high > epsilon_high, log_ratio.high < -epsilon_low)
    bound = mx.where(advantages > 0, epsilon_high, -epsilon_low)
    return Double(mx.where(outside, bound, log_ratio.high), mx.where(outside, 0.0, log_ratio.low))
