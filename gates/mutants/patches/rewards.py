"""Mistakes for the NumPy subject's advantage over several reward functions. Loaded in a worker only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


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
