"""Mistakes that break a law of advantages. Loaded in a worker only; each takes the original and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def baseline_at_least_zero(original: Fn) -> Fn:
    """Leave rewards below 0 without a baseline."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        right = original(rewards, group_size, **choice)
        groups = rewards.reshape(-1, group_size)
        low = np.minimum(groups.mean(axis=1, keepdims=True), 0) * np.ones_like(groups)
        return (right + low.reshape(-1)).astype(rewards.dtype)

    return mistaken


def divided_by_all(original: Fn) -> Fn:
    """Divide the sum of the others by G."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        right = original(rewards, group_size, **choice)
        if choice.get("baseline") != "leave-one-out" or choice.get("scale") != "none":
            return right
        groups = rewards.reshape(-1, group_size)
        others = (groups.sum(axis=1, keepdims=True) - groups) / rewards.dtype.type(group_size)
        return (groups - others).reshape(-1).astype(rewards.dtype)

    return mistaken


def clipped(original: Fn) -> Fn:
    """Clip rewards to [-10, 10]."""

    def mistaken(rewards: Any, *rest: Any, **choice: Any) -> Any:
        return original(np.clip(rewards, -10, 10), *rest, **choice)

    return mistaken
