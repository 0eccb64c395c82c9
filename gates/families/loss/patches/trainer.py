"""Mutations of the trainer's losses; loaded in workers only."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from gates.families.patching import Fn, mutation
from gates_reference.trainer.double import Double


@mutation
def shifted_by_one(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Slice `[:, :-1]` where `[:, 1:]` is right: each token is scored with logits that have already seen it."""
    slots = original(*arguments, **rest)
    return slots._replace(source=mx.where(slots.mask, slots.source + 1, slots.source))


@mutation
def multiply_by_mask(_original: Fn, mask: Any, values: Any) -> Any:
    """Mask by multiplication: NaN · 0 is NaN."""
    return values * mask


@mutation
def constant_ratio(original: Fn, policy: Any, old: Any) -> Any:
    """Use the policy's own log-probs as the old ones: every ratio is 1, and clips have no effect."""
    del old
    return original(policy, mx.stop_gradient(policy))


@mutation
def inverted_kl(original: Fn, policy: Any, reference: Any, *estimator: Any) -> Any:
    """Swap policy and reference in k3."""
    return original(reference, policy, *estimator)


@mutation
def token_mean(original: Fn, aggregation: Any, *rest: Any) -> Any:
    """Average over all tokens of the step instead of the rows' means."""
    return original("global" if aggregation == "row-mean" else aggregation, *rest)


@mutation
def mean_over_padding(
    original: Fn, values: Any, policy: Any, reference: Any, log_ratio: Any, counts: Any, **rest: Any
) -> Any:
    """Divide a row's KL by the padded width."""
    found = original(values, policy, reference, log_ratio, counts, **rest)
    return found * counts / policy.shape[1]


@mutation
def sum_for_mean(original: Fn, log_ratio: Any, counts: Any) -> Any:
    """Multiply the mean by the number of tokens."""
    mean = original(log_ratio, counts)
    return type(mean)(*(part * counts for part in mean))


@mutation
def detached(original: Fn, log_ratio: Any, counts: Any) -> Any:
    """Detach the mean."""
    mean = original(log_ratio, counts)
    return type(mean)(*(mx.stop_gradient(part) for part in mean))


@mutation
def leaking_kl(original: Fn, settings: Any, part: Any, policy: Any, *rest: Any) -> Any:
    """Add the gradient of the KL in the reward without changing the value."""
    found = original(settings, part, policy, *rest)
    if not settings.kl_in_reward:
        return found
    return found + settings.beta * mx.sum(policy - mx.stop_gradient(policy)) / len(policy)


@mutation
def raised_reward(original: Fn, totals: Any, settings: Any, old_kl: Any) -> Any:
    """Add the KL to the reward."""
    return original(totals, settings, None if old_kl is None else -old_kl)


@mutation
def averaged_penalty(original: Fn, old: Any, reference: Any, mask: Any) -> Any:
    """Divide a completion's KL by its number of tokens."""
    return original(old, reference, mask) / np.maximum(np.array(mask).sum(axis=1), 1)


@mutation
def last_prompt_token_too(original: Fn, *arguments: Any) -> Any:
    """Read the logits one position earlier, if there is one."""
    slots = original(*arguments)
    return slots._replace(source=mx.where(slots.mask, mx.maximum(slots.source - 1, 0), slots.source))


def _alive(value: Any, live: Any) -> Any:
    """Return the value with its own gradient plus that of `live`."""
    return value + (live - mx.stop_gradient(live))


@mutation
def live_reference(original: Fn, policy: Any, reference: Any, *estimator: Any) -> Any:
    """Keep the reference's gradient ∂k3/∂reference in the KL."""
    d = reference - mx.stop_gradient(policy)
    return _alive(original(policy, reference, *estimator), mx.exp(d) - d)


@mutation
def live_given_old(original: Fn, policy: Any, old: Any) -> Any:
    """Keep the gradient of recorded old log-probs."""
    pair = original(policy, old)
    return pair if old is None else pair._replace(high=_alive(pair.high, -old))


@mutation
def live_weights(original: Fn, old: Any, sampling: Any, mask: Any, *, level: str, **bounds: Any) -> Any:
    """Keep the gradient of the log-probs in the off-policy weights."""
    weights = original(old, sampling, mask, level=level, **bounds)
    delta = mx.where(mask, old - mx.where(mx.isnan(sampling), old, sampling), 0.0)
    own = delta if level == "token" else delta.sum(axis=1, keepdims=True)
    return _alive(weights, mx.stop_gradient(weights) * own)


@mutation
def where_multiplies(_original: Fn, mask: Any, values: Any) -> Any:
    """Select with MLX's own `where`."""
    return mx.where(mask, values, mx.zeros((), values.dtype))


@mutation
def held_by_where(_original: Fn, log_ratio: Any, advantages: Any, epsilon_low: float, epsilon_high: float) -> Any:
    """Hold tokens with MLX's own `where`."""
    outside = mx.where(advantages > 0, log_ratio.high > epsilon_high, log_ratio.high < -epsilon_low)
    bound = mx.where(advantages > 0, epsilon_high, -epsilon_low)
    return Double(mx.where(outside, bound, log_ratio.high), mx.where(outside, 0.0, log_ratio.low))
