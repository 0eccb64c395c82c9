"""Mutations of group advantages and of rewards that are normalised before summation; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.advantages.program import GROUP, SEVERAL
from gates.families.advantages.recurrence import GAE
from gates.families.edited import edited
from gates.families.patching import Fn, mutation

swap_group_and_batch = edited(
    GROUP, "divided by the deviation of the whole batch", "divided by the deviation of the group"
)
always_ddof_0 = edited(GROUP, "group z-score with ddof 0", "batch z-score with ddof 0")
always_ddof_1 = edited(GROUP, "group z-score with ddof 1", "batch z-score with ddof 1")
always_add = edited(GROUP, "group z-score with std + 1e-08", "batch z-score with std + 1e-08")
always_scaled = edited(GROUP, "group z-score with ddof 1, std + 0.0001")
other_baseline = edited(GROUP, "baseline: the mean of the group")
unscored_is_zero = edited(GROUP, "unscored rewards counted as 0")
swapped_stages = edited(SEVERAL, "ddof and ε of the groups and of the batch exchanged")
swapped_ddof = edited(SEVERAL, "ddof of the groups and of the batch exchanged")
sum_first = edited(SEVERAL, "rewards summed first, then normalised over the batch")
no_second_stage = edited(SEVERAL, "the weighted sum not normalised")
equal_weights = edited(SEVERAL, "weights ignored")
trace_over_the_end = edited(GAE, "the end of an episode cuts the value that follows, not the trace")
nothing_follows = edited(GAE, "the value after a row's last token taken for 0")
every_slot = edited(GAE, "slots without a token stepped through, as if they were tokens")


@mutation
def baseline_at_least_zero(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Clamp the baseline to at least 0."""
    right = original(rewards, group_size, **choice)
    groups = rewards.reshape(-1, group_size)
    low = np.minimum(groups.mean(axis=1, keepdims=True), 0) * np.ones_like(groups)
    return (right + low.reshape(-1)).astype(rewards.dtype)


@mutation
def divided_by_all(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Divide the sum of the other rewards by G."""
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
def naive_mean(_original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Compute mean and deviation in the dtype, without a rule for constant groups, as most code does."""
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
def float32_sums(original: Fn, rewards: Any, *rest: Any, **choice: Any) -> Any:
    """Average float64 rewards in float32."""
    return original(rewards.astype(np.float32), *rest, **choice).astype(rewards.dtype)


@mutation
def regrouped_by_stride(original: Fn, rewards: Any, group_size: int, **choice: Any) -> Any:
    """Drop unscored rows, and cut the rest into groups of the configured size."""
    kept = ~np.isnan(rewards)
    found = np.zeros_like(rewards)
    missing = np.full(int((~kept).sum()), np.nan, rewards.dtype)
    found[kept] = original(np.concatenate([rewards[kept], missing]), group_size, **choice)[: int(kept.sum())]
    return found


@mutation
def nan_counts_zero(original: Fn, stacked: Any, ddof: Any, eps: Any) -> Any:
    """Count unscored rewards as 0, in the group's mean and deviation too."""
    return original(np.nan_to_num(stacked), ddof, eps)


@mutation
def nobody_scored_counts(original: Fn, total: Any, ddof: Any, eps: Any) -> Any:
    """Count a row that no function scored as a sum of 0, in the batch's mean and deviation too."""
    return original(np.nan_to_num(total), ddof, eps)


@mutation
def largest_unit(_original: Fn, stacked: Any, ddof: int, eps: float) -> Any:
    """Divide every reward function by the largest standard deviation of all."""
    centred = stacked - np.nanmean(stacked, axis=-1, keepdims=True)
    return np.nan_to_num(centred / (np.nanmax(np.nanstd(stacked, axis=-1, ddof=ddof)) + eps))
