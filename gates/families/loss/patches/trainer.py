"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

Fn = Callable[..., Any]


def shifted_by_one(original: Fn) -> Fn:
    """Slice `[:, :-1]` where `[:, 1:]` is right: each token is scored by the logits that have already seen it."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        slots = original(*arguments, **rest)
        return slots._replace(source=mx.where(slots.mask, slots.source + 1, slots.source))

    return mistaken


def multiply_by_mask(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Mask by multiplication: NaN · 0 is NaN."""
    return lambda mask, values: values * mask


def constant_ratio(original: Fn) -> Fn:
    """Take the policy's own log-probs as the old ones: every ratio is 1, and every clip inert."""

    def mistaken(policy: Any, old: Any) -> Any:
        del old
        return original(policy, mx.stop_gradient(policy))

    return mistaken


def inverted_kl(original: Fn) -> Fn:
    """Swap policy and reference in k3."""
    return lambda policy, reference, *estimator: original(reference, policy, *estimator)


def token_mean(original: Fn) -> Fn:
    """Average over all tokens of the step where GRPO averages rows of their own means."""
    return lambda aggregation, *rest: original("global" if aggregation == "row-mean" else aggregation, *rest)


def mean_over_padding(original: Fn) -> Fn:
    """Divide a row's KL by the padded width."""

    def mistaken(values: Any, policy: Any, reference: Any, log_ratio: Any, counts: Any, **rest: Any) -> Any:
        found = original(values, policy, reference, log_ratio, counts, **rest)
        return found * counts / policy.shape[1]

    return mistaken


def sum_for_mean(original: Fn) -> Fn:
    """Multiply the mean by the tokens again."""

    def mistaken(log_ratio: Any, counts: Any) -> Any:
        mean = original(log_ratio, counts)
        return type(mean)(*(part * counts for part in mean))

    return mistaken


def detached(original: Fn) -> Fn:
    """Hold the mean constant."""

    def mistaken(log_ratio: Any, counts: Any) -> Any:
        mean = original(log_ratio, counts)
        return type(mean)(*(mx.stop_gradient(part) for part in mean))

    return mistaken


def leaking_kl(original: Fn) -> Fn:
    """Give the KL in the reward a gradient of its own, and no value."""

    def mistaken(settings: Any, part: Any, policy: Any, *rest: Any) -> Any:
        found = original(settings, part, policy, *rest)
        if not settings.kl_in_reward:
            return found
        return found + settings.beta * mx.sum(policy - mx.stop_gradient(policy)) / len(policy)

    return mistaken


def raised_reward(original: Fn) -> Fn:
    """Add the KL to the reward."""
    return lambda totals, settings, old_kl: original(totals, settings, None if old_kl is None else -old_kl)


def averaged_penalty(original: Fn) -> Fn:
    """Divide a completion's KL by its tokens."""
    return lambda old, reference, mask: original(old, reference, mask) / np.maximum(np.array(mask).sum(axis=1), 1)
