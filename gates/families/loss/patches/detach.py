"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

Fn = Callable[..., Any]


def live_old(original: Fn) -> Fn:
    """On-policy, leave the gradient to the KL alone."""

    def mistaken(**inputs: Any) -> Any:
        loss, gradient = original(**inputs)
        if inputs.get("old") is not None:
            return loss, gradient
        silent = original(**{**inputs, "advantages": np.zeros_like(inputs["advantages"])})
        return loss, silent[1]

    return mistaken


def last_prompt_token_too(original: Fn) -> Fn:
    """Read the logits one position early, where there is one."""

    def mistaken(*arguments: Any) -> Any:
        slots = original(*arguments)
        return slots._replace(source=mx.where(slots.mask, mx.maximum(slots.source - 1, 0), slots.source))

    return mistaken


def _alive(value: Any, live: Any) -> Any:
    """Return a value with the gradient of `live`, and its own."""
    return value + (live - mx.stop_gradient(live))


def live_reference(original: Fn) -> Fn:
    """Keep the reference's graph in the KL: its value, and ∂k3/∂reference besides."""

    def mistaken(policy: Any, reference: Any, *estimator: Any) -> Any:
        d = reference - mx.stop_gradient(policy)
        return _alive(original(policy, reference, *estimator), mx.exp(d) - d)

    return mistaken


def live_given_old(original: Fn) -> Fn:
    """Keep the graph of old log-probs that are given."""

    def mistaken(policy: Any, old: Any) -> Any:
        pair = original(policy, old)
        return pair if old is None else pair._replace(high=_alive(pair.high, -old))

    return mistaken


def live_weights(original: Fn) -> Fn:
    """Keep the graph of the log-probs in the off-policy weights, on-policy that of the policy itself."""

    def mistaken(old: Any, sampling: Any, mask: Any, *, level: str, **bounds: Any) -> Any:
        weights = original(old, sampling, mask, level=level, **bounds)
        delta = mx.where(mask, old - mx.where(mx.isnan(sampling), old, sampling), 0.0)
        own = delta if level == "token" else delta.sum(axis=1, keepdims=True)
        return _alive(weights, mx.stop_gradient(weights) * own)

    return mistaken
