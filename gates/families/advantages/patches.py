"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

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


def clip_ddof(ddof: int) -> Callable[[Fn], Fn]:
    """Divide the squares by n - ddof whatever was asked for."""

    def patch(original: Fn) -> Fn:
        def mistaken(rewards: Any, scale: str, asked: Any, *rest: Any) -> Any:
            del asked
            return original(rewards, scale, ddof, *rest)

        return mistaken

    return patch


always_ddof_0 = clip_ddof(0)
always_ddof_1 = clip_ddof(1)


def always_add(original: Fn) -> Fn:
    """Add ε to the deviation in every mode."""

    def mistaken(rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
        return original(rewards, scale, ddof, eps, mode and "add")

    return mistaken


def always_scaled(original: Fn) -> Fn:
    """Divide by the deviation of the group although nothing should divide."""

    def mistaken(rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
        return (
            original(rewards, "group", 1, 1e-4, "add") if scale == "none" else original(rewards, scale, ddof, eps, mode)
        )

    return mistaken


def other_baseline(original: Fn) -> Fn:
    """Take the mean of all where that of the others was asked for."""

    def mistaken(*arguments: Any, **choice: Any) -> Any:
        return original(*arguments, **{**choice, "baseline": "mean"})

    return mistaken


def float32_sums(original: Fn) -> Fn:
    """Take means of float64 rewards in float32."""

    def mistaken(rewards: Any, *rest: Any, **choice: Any) -> Any:
        return original(rewards.astype(np.float32), *rest, **choice).astype(rewards.dtype)

    return mistaken


def regrouped_by_stride(original: Fn) -> Fn:
    """Drop the rows that were not scored, and cut what is left into groups of the configured size."""

    def mistaken(rewards: Any, group_size: int, **choice: Any) -> Any:
        kept = ~np.isnan(rewards)
        found = np.zeros_like(rewards)
        missing = np.full(int((~kept).sum()), np.nan, rewards.dtype)
        found[kept] = original(np.concatenate([rewards[kept], missing]), group_size, **choice)[: int(kept.sum())]
        return found

    return mistaken


def swapped_stages(original: Fn) -> Fn:
    """Use the batch's ddof and ε in the groups, and the groups' over the batch."""
    other = {"group_ddof": "batch_ddof", "batch_ddof": "group_ddof", "group_eps": "batch_eps", "batch_eps": "group_eps"}

    def mistaken(**inputs: Any) -> Any:
        return original(**{other.get(name, name): value for name, value in inputs.items()})

    return mistaken


def swapped_ddof(original: Fn) -> Fn:
    """Use the batch's ddof in the groups, and the groups' over the batch."""

    def mistaken(*, group_ddof: int, batch_ddof: int, **rest: Any) -> Any:
        return original(group_ddof=batch_ddof, batch_ddof=group_ddof, **rest)

    return mistaken


def sum_first(original: Fn) -> Fn:
    """Sum the raw rewards: no function is normalised in its group."""
    del original
    return lambda stacked, *_: np.nan_to_num(stacked)


def no_second_stage(original: Fn) -> Fn:
    """Return the weighted sum as it is."""
    del original
    return lambda total, *_: np.nan_to_num(total)


def nan_counts_zero(original: Fn) -> Fn:
    """Count what could not be scored as a reward of 0, in the group's mean and deviation too."""
    return lambda stacked, ddof, eps: original(np.nan_to_num(stacked), ddof, eps)


def nobody_scored_counts(original: Fn) -> Fn:
    """Count a row that no function could score as a sum of 0, in the batch's mean and deviation too."""
    return lambda total, ddof, eps: original(np.nan_to_num(total), ddof, eps)


def equal_weights(original: Fn) -> Fn:
    """Weight every reward function alike."""
    return lambda scores, weights: original(scores, np.ones_like(weights))


def largest_unit(original: Fn) -> Fn:
    """Divide every function by the largest deviation of all: their own units stay."""
    del original

    def mistaken(stacked: Any, ddof: int, eps: float) -> Any:
        centred = stacked - np.nanmean(stacked, axis=-1, keepdims=True)
        return np.nan_to_num(centred / (np.nanmax(np.nanstd(stacked, axis=-1, ddof=ddof)) + eps))

    return mistaken
