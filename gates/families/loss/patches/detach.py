"""Mutations of what is a constant in a loss; loaded in workers only."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def live_old(original: Fn, **inputs: Any) -> Any:
    """On-policy, leave the gradient to the KL alone."""
    loss, gradient = original(**inputs)
    if inputs.get("old") is not None:
        return loss, gradient
    silent = original(**{**inputs, "advantages": np.zeros_like(inputs["advantages"])})
    return loss, silent[1]


@mutation
def last_prompt_token_too(original: Fn, *arguments: Any) -> Any:
    """Read the logits one position early, where there is one."""
    slots = original(*arguments)
    return slots._replace(source=mx.where(slots.mask, mx.maximum(slots.source - 1, 0), slots.source))


def _alive(value: Any, live: Any) -> Any:
    """Return a value with the gradient of `live`, and its own."""
    return value + (live - mx.stop_gradient(live))


@mutation
def live_reference(original: Fn, policy: Any, reference: Any, *estimator: Any) -> Any:
    """Keep the reference's graph in the KL: its value, and ∂k3/∂reference besides."""
    d = reference - mx.stop_gradient(policy)
    return _alive(original(policy, reference, *estimator), mx.exp(d) - d)


@mutation
def live_given_old(original: Fn, policy: Any, old: Any) -> Any:
    """Keep the graph of old log-probs that are given."""
    pair = original(policy, old)
    return pair if old is None else pair._replace(high=_alive(pair.high, -old))


@mutation
def live_weights(original: Fn, old: Any, sampling: Any, mask: Any, *, level: str, **bounds: Any) -> Any:
    """Keep the graph of the log-probs in the off-policy weights, on-policy that of the policy itself."""
    weights = original(old, sampling, mask, level=level, **bounds)
    delta = mx.where(mask, old - mx.where(mx.isnan(sampling), old, sampling), 0.0)
    own = delta if level == "token" else delta.sum(axis=1, keepdims=True)
    return _alive(weights, mx.stop_gradient(weights) * own)
