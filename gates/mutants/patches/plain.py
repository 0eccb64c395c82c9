"""Mistakes for the NumPy subject. Loaded in a worker only; each function takes the original and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def swap_group_and_batch(original: Fn) -> Fn:
    """Take the batch's deviation where the group's is asked for, and the other way round."""
    other = {"group": "batch", "batch": "group"}

    def mistaken(rewards: Any, scale: str, *rest: Any) -> Any:
        return original(rewards, other.get(scale, scale), *rest)

    return mistaken


def naive_mean(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Compute advantages as most code does: float mean and deviation of the dtype, no rule for constant groups."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        groups = rewards.reshape(-1, group_size)
        mean = np.add.accumulate(groups, axis=1)[:, -1:] / rewards.dtype.type(group_size)
        if choice["baseline"] == "leave-one-out":
            mean = (mean * group_size - groups) / rewards.dtype.type(group_size - 1)
        divisor: Any = 1.0
        if choice["scale"] == "group":
            spread = np.sqrt(((groups - mean) ** 2).sum(axis=1, keepdims=True) / max(1, group_size - choice["ddof"]))
            divisor = np.maximum(spread + choice["eps"], np.finfo(rewards.dtype).tiny)
        return ((groups - mean) / divisor).reshape(-1).astype(rewards.dtype)

    return mistaken


def unscored_is_zero(original: Fn) -> Fn:
    """Count a reward function that could not score as a score of 0."""

    def mistaken(rewards: Any, *rest: Any, **choice: Any) -> Any:
        return original(np.nan_to_num(rewards, nan=0.0), *rest, **choice)

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


def multiply_by_mask(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Mask by multiplication: NaN · 0 is NaN."""

    def mistaken(values: Any, mask: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return values * mask

    return mistaken


def padded_length(original: Fn) -> Fn:
    """Divide Dr. GRPO by the longest completion of the batch instead of the configured L_max."""

    def mistaken(mask: Any, max_length: int) -> Any:
        del max_length
        return original(mask, mask.shape[1])

    return mistaken


def constant_ratio(original: Fn) -> Fn:
    """Recompute `old` from the policy of this very step, so that every ratio is 1."""

    def mistaken(policy: Any, old: Any, *rest: Any) -> Any:
        del old
        return original(policy, policy, *rest)

    return mistaken


def as_algorithm(name: str) -> Callable[[Fn], Fn]:
    """Compute another algorithm's loss than the one that was asked for."""

    def patch(original: Fn) -> Fn:
        def mistaken(**inputs: Any) -> Any:
            return original(**{**inputs, "algorithm": name})

        return mistaken

    return patch


per_row_mean = as_algorithm("grpo")
"""Average every row by its own length, as GRPO does, where another aggregation was asked for."""


def one_micro_batch(original: Fn) -> Fn:
    """Average over the whole batch where TRL's bnpo averages each micro-batch."""

    def mistaken(**inputs: Any) -> Any:
        return original(**{**inputs, "micro_batches": [inputs["policy"].shape[0]]})

    return mistaken


def inert_clip(original: Fn) -> Fn:
    """Clip with bounds that never act."""

    def mistaken(**inputs: Any) -> Any:
        return original(**{**inputs, "epsilon_low": 0.99, "epsilon_high": 1e6})

    return mistaken


def overflowing_bins(original: Fn) -> Fn:
    """Allow one token too many in a bin."""

    def mistaken(lengths: Any, max_length: int) -> Any:
        return original(np.maximum(lengths - 1, 0), max_length)

    return mistaken


def lose_the_last(original: Fn) -> Fn:
    """Forget the last sequence of the last bin."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        indices, offsets = original(*arguments, **rest)
        return indices[:-1], np.minimum(offsets, indices.size - 1)

    return mistaken


def unstable_ties(original: Fn) -> Fn:
    """Order sequences of equal length differently in every call."""
    calls = count(1)

    def mistaken(lengths: Any, max_length: int) -> Any:
        shift = next(calls) * 7 % max(1, len(lengths))
        indices, offsets = original(np.roll(lengths, shift), max_length)
        return (indices - shift) % len(lengths), offsets

    return mistaken
