"""Mistakes in the MLX trainer's losses. Loaded in a worker only; each takes the original and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

Fn = Callable[..., Any]


def denominators_of_parts(original: Fn) -> Fn:
    """Let a part divide by its own counts, and average the parts."""

    def mistaken(aggregation: str, part: Any, whole: Any, counts: Any) -> Any:
        tokens = np.array(counts)[:, 0]
        own = replace(
            whole,
            rows=len(tokens),
            tokens=int(tokens.sum()),
            group_tokens=np.bincount(part.groups, weights=tokens).astype(np.int64)[np.unique(part.groups)],
            parts=1,
            window_tokens=float(tokens.sum()),
        )
        local = replace(part, groups=np.unique(part.groups, return_inverse=True)[1])
        return original(aggregation, local, own, counts) / whole.parts

    return mistaken


def token_means_of_parts(original: Fn) -> Fn:
    """Take the token mean of a micro-batch, whatever was asked for."""
    return lambda aggregation, *rest: original("micro-batch" if aggregation else aggregation, *rest)


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
