"""Mutations of group advantages and of rewards that are normalised before they are summed; loaded in workers only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def baseline_at_least_zero(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Leave rewards below 0 without a baseline."""
    right = original(rewards, group_size, **choice)
    groups = rewards.reshape(-1, group_size)
    low = np.minimum(groups.mean(axis=1, keepdims=True), 0) * np.ones_like(groups)
    return (right + low.reshape(-1)).astype(rewards.dtype)


@mutation
def divided_by_all(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Divide the sum of the others by G."""
    right = original(rewards, group_size, **choice)
    if choice.get("baseline") != "leave-one-out" or choice.get("scale") != "none":
        return right
    groups = rewards.reshape(-1, group_size)
    others = (groups.sum(axis=1, keepdims=True) - groups) / rewards.dtype.type(group_size)
    return (groups - others).reshape(-1).astype(rewards.dtype)


@mutation
def clipped(original: Fn, rewards: Any, *rest: Any, **choice: Any) -> Any:
    """Clip rewards to [-10, 10]."""
    return original(np.clip(rewards, -10, 10), *rest, **choice)


@mutation
def swap_group_and_batch(original: Fn, rewards: Any, scale: str, *rest: Any) -> Any:
    """Take the batch's deviation where the group's is asked for, and the other way round."""
    other = {"group": "batch", "batch": "group"}
    return original(rewards, other.get(scale, scale), *rest)


@mutation
def naive_mean(_original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Compute advantages as most code does: float mean and deviation of the dtype, no rule for constant groups."""
    groups = rewards.reshape(-1, group_size)
    mean = np.add.accumulate(groups, axis=1)[:, -1:] / rewards.dtype.type(group_size)
    if choice["baseline"] == "leave-one-out":
        mean = (mean * group_size - groups) / rewards.dtype.type(group_size - 1)
    divisor: Any = 1.0
    if choice["scale"] == "group":
        spread = np.sqrt(((groups - mean) ** 2).sum(axis=1, keepdims=True) / max(1, group_size - choice["ddof"]))
        divisor = np.maximum(spread + choice["eps"], np.finfo(rewards.dtype).tiny)
    return ((groups - mean) / divisor).reshape(-1).astype(rewards.dtype)


@mutation
def unscored_is_zero(original: Fn, rewards: Any, *rest: Any, **choice: Any) -> Any:
    """Count a reward function that could not score as a score of 0."""
    return original(np.nan_to_num(rewards, nan=0.0), *rest, **choice)


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


@mutation
def always_add(original: Fn, rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
    """Add ε to the deviation in every mode."""
    return original(rewards, scale, ddof, eps, mode and "add")


@mutation
def always_scaled(original: Fn, rewards: Any, scale: str, ddof: Any, eps: Any, mode: Any) -> Any:
    """Divide by the deviation of the group although nothing should divide."""
    return original(rewards, "group", 1, 1e-4, "add") if scale == "none" else original(rewards, scale, ddof, eps, mode)


@mutation
def other_baseline(original: Fn, *arguments: Any, **choice: Any) -> Any:
    """Take the mean of all where that of the others was asked for."""
    return original(*arguments, **{**choice, "baseline": "mean"})


@mutation
def float32_sums(original: Fn, rewards: Any, *rest: Any, **choice: Any) -> Any:
    """Take means of float64 rewards in float32."""
    return original(rewards.astype(np.float32), *rest, **choice).astype(rewards.dtype)


@mutation
def regrouped_by_stride(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Drop the rows that were not scored, and cut what is left into groups of the configured size."""
    kept = ~np.isnan(rewards)
    found = np.zeros_like(rewards)
    missing = np.full(int((~kept).sum()), np.nan, rewards.dtype)
    found[kept] = original(np.concatenate([rewards[kept], missing]), group_size, **choice)[: int(kept.sum())]
    return found


@mutation
def swapped_stages(original: Fn, **inputs: Any) -> Any:
    """Use the batch's ddof and ε in the groups, and the groups' over the batch."""
    other = {"group_ddof": "batch_ddof", "batch_ddof": "group_ddof", "group_eps": "batch_eps", "batch_eps": "group_eps"}
    return original(**{other.get(name, name): value for name, value in inputs.items()})


@mutation
def swapped_ddof(original: Fn, *, group_ddof: int, batch_ddof: int, **rest: Any) -> Any:
    """Use the batch's ddof in the groups, and the groups' over the batch."""
    return original(group_ddof=batch_ddof, batch_ddof=group_ddof, **rest)


@mutation
def sum_first(_original: Fn, stacked: Any, *_: Any) -> Any:
    """Sum the raw rewards: no function is normalised in its group."""
    return np.nan_to_num(stacked)


@mutation
def no_second_stage(_original: Fn, total: Any, *_: Any) -> Any:
    """Return the weighted sum as it is."""
    return np.nan_to_num(total)


@mutation
def nan_counts_zero(original: Fn, stacked: Any, ddof: Any, eps: Any) -> Any:
    """Count what could not be scored as a reward of 0, in the group's mean and deviation too."""
    return original(np.nan_to_num(stacked), ddof, eps)


@mutation
def nobody_scored_counts(original: Fn, total: Any, ddof: Any, eps: Any) -> Any:
    """Count a row that no function could score as a sum of 0, in the batch's mean and deviation too."""
    return original(np.nan_to_num(total), ddof, eps)


@mutation
def equal_weights(original: Fn, scores: Any, weights: Any) -> Any:
    """Weight every reward function alike."""
    return original(scores, np.ones_like(weights))


@mutation
def largest_unit(_original: Fn, stacked: Any, ddof: int, eps: float) -> Any:
    """Divide every function by the largest deviation of all: their own units stay."""
    centred = stacked - np.nanmean(stacked, axis=-1, keepdims=True)
    return np.nan_to_num(centred / (np.nanmax(np.nanstd(stacked, axis=-1, ddof=ddof)) + eps))


@mutation
def trace_over_the_end(original: Fn, reward: Any, value: Any, ends: Any, last: float, gamma: float, lam: float) -> Any:
    """Drop the following value at an end, and keep the following advantage."""
    deltas = reward + gamma * np.append(value[1:], last) * ~ends - value
    nothing = np.zeros_like(value)
    return original(deltas, nothing, np.zeros_like(ends), 0.0, gamma, lam)


@mutation
def nothing_follows(original: Fn, reward: Any, value: Any, ends: Any, _last: float, *rest: Any) -> Any:
    """Take 0 for the value after a row."""
    return original(reward, value, ends, 0.0, *rest)


@mutation
def every_slot(original: Fn, shape: Any, _mask: Any, lengths: Any) -> Any:
    """Step through every slot of a padded array."""
    return original(shape, None, lengths if len(shape) == 1 else None)
