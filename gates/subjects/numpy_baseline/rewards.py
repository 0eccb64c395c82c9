"""The NumPy subject's advantage over several reward functions: normalised each in its group, summed, normalised again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def normalise_then_sum(
    rewards: Array,
    weights: Array,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
) -> Array:
    """Advantages (B,) of rewards (B, F); a NaN is unscored, and a row is unscored only if all its rewards are."""
    for name, ddof in (("group_ddof", group_ddof), ("batch_ddof", batch_ddof)):
        arguments.one_of(name, ddof, (0, 1))
    for name, eps in (("group_eps", group_eps), ("batch_eps", batch_eps)):
        arguments.within(name, eps, 0.0)
    table = arguments.wide("rewards", rewards)
    if table.ndim != 2:
        raise ValueError(f"`rewards` has shape {table.shape}, must be (B, F)")
    factors = arguments.wide("weights", weights, table.shape[1:])
    if not factors.size or not np.all(np.isfinite(factors)):
        raise ValueError(f"`weights` is {factors.tolist()}, must be finite and at least one")
    if group_size < 1 or len(table) == 0 or len(table) % group_size:
        raise ValueError(f"`rewards` has {len(table)} rows, must be a positive multiple of group_size {group_size}")
    if np.any(np.isinf(table)):
        raise ValueError("`rewards` holds an infinity, must be finite, or NaN for unscored")
    stacked = np.swapaxes(table.reshape(-1, group_size, table.shape[1]), 1, 2)  # (prompts, F, G)
    scores = first_stage(stacked, group_ddof, group_eps)
    total = weighted_sum(np.swapaxes(scores, 1, 2).reshape(table.shape), factors)
    total = np.where(np.all(np.isnan(table), axis=1), np.nan, total)
    return arguments.narrow(second_stage(total, batch_ddof, batch_eps), rewards)


def first_stage(stacked: Array, ddof: int, eps: float) -> Array:
    """Return the z-score of each reward function in each group, 0 where it could not score."""
    return z_scores(stacked, ddof, eps)


def second_stage(total: Array, ddof: int, eps: float) -> Array:
    """Return the z-score of the weighted sums over the batch, 0 for an unscored row."""
    return z_scores(total[None], ddof, eps)[0]


def weighted_sum(scores: Array, weights: Array) -> Array:
    """Return Σ_f w_f z_f of each row."""
    return scores @ weights


def z_scores(values: Array, ddof: int, eps: float) -> Array:
    """Return (x − mean) / (std + eps) along the last axis over what is not NaN; 0 where it is, or where all are equal."""
    scored = ~np.isnan(values)
    count = scored.sum(axis=-1, keepdims=True)
    largest = np.max(np.where(scored, values, -np.inf), axis=-1, keepdims=True)
    smallest = np.min(np.where(scored, values, np.inf), axis=-1, keepdims=True)
    moves = largest > smallest
    anchor = np.where(moves, smallest, 0.0)  # sums of what lies above the smallest lose nothing to a common offset
    above = np.where(scored & moves, values - anchor, 0.0)
    centred = np.where(scored & moves, above - above.sum(axis=-1, keepdims=True) / np.maximum(count, 1), 0.0)
    unit = np.maximum(np.max(np.abs(centred), axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    spread = unit * np.sqrt(((centred / unit) ** 2).sum(axis=-1, keepdims=True) / np.maximum(count - ddof, 1))
    return np.divide(centred, spread + eps, out=np.zeros(values.shape), where=moves & scored)
