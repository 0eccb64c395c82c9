"""The NumPy baseline's advantages: within groups, of several normalised rewards, and GAE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def group_advantages(
    rewards: Array,
    group_size: int,
    *,
    scale: str = "group",
    ddof: int | None = 1,
    eps: float | None = 1e-4,
    eps_mode: str | None = "add",
    baseline: str = "mean",
) -> Array:
    """Advantages of prompt-major rewards (B,) within groups of `group_size`; NaN is unscored, a constant group is 0."""
    arguments.one_of("scale", scale, ("group", "batch", "none"))
    arguments.one_of("baseline", baseline, ("mean", "leave-one-out", "batch", "none"))
    whole = baseline in {"batch", "none"}
    if whole and scale == "group":
        raise ValueError(f"`scale` is 'group', must be 'batch' or 'none' with baseline {baseline!r}")
    if scale != "none":
        arguments.one_of("ddof", ddof, (0, 1))
        arguments.one_of("eps_mode", eps_mode, ("add", "inside", "threshold"))
        arguments.within("eps", math.nan if eps is None else eps, 0.0)
    grid = _group_grid(rewards, group_size, least=2 if baseline == "leave-one-out" else 1)
    compared = grid.reshape(1, -1) if whole else grid
    above = above_baseline(compared, baseline).reshape(grid.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = above / scale_divisor(grid, scale, ddof, eps, eps_mode)
    zero = np.isnan(grid)
    if (baseline, scale) != ("none", "none"):
        zero |= constant_groups(compared)[:, None]
    return arguments.narrow(np.where(zero, 0.0, ratio).reshape(-1), rewards)


def above_baseline(rewards2d: Array, baseline: str) -> Array:
    """Return each reward less the mean of its row, that of the row's others, or 0."""
    unit, power, _, count = _in_units(rewards2d)
    total = unit.sum(axis=1, keepdims=True)
    if baseline == "none":
        return np.ldexp(unit, power)
    if baseline == "leave-one-out":
        return np.ldexp(unit - (total - unit) / np.maximum(count - 1, 1), power)
    return np.ldexp(unit - total / np.maximum(count, 1), power)


def _group_grid(rewards: Array, group_size: int, least: int) -> Array:
    flat = arguments.wide("rewards", rewards)
    if flat.ndim != 1:
        raise ValueError(f"`rewards` has shape {flat.shape}, must be (B,)")
    if group_size < least:
        raise ValueError(f"`group_size` is {group_size}, must be at least {least}")
    if flat.size == 0 or flat.size % group_size:
        raise ValueError(f"`rewards` has {flat.size} elements, must be a positive multiple of group_size {group_size}")
    if infinite := np.flatnonzero(np.isinf(flat)).tolist():
        raise ValueError(f"`rewards` is {flat[infinite[0]]} at index {infinite[0]}, must be finite or NaN (unscored)")
    return flat.reshape(-1, group_size)


def _in_units(rewards2d: Array) -> tuple[Array, Array, Array, Array]:
    """Scale each row by a power of two, which keeps sums and squares in range without changing a bit of a mean."""
    scored = ~np.isnan(rewards2d)
    values = np.where(scored, rewards2d, 0.0)
    power = np.frexp(np.max(np.abs(values), axis=1, keepdims=True))[1]
    return np.ldexp(values, -power), power, scored, scored.sum(axis=1, keepdims=True)


def constant_groups(rewards2d: Array) -> Array:
    """Return for each group whether its scored rewards are all equal; true for one or none."""
    highest = np.fmax.reduce(rewards2d, axis=1)
    return ~(highest > np.fmin.reduce(rewards2d, axis=1))


def scale_divisor(rewards2d: Array, scale: str, ddof: int | None, eps: float | None, eps_mode: str | None) -> Array:
    """Return the divisor of each group, broadcastable to (prompts, group_size); infinite below the threshold."""
    if scale == "none" or ddof is None or eps is None:
        return np.ones((1, 1))
    spread = _deviation(rewards2d if scale == "group" else rewards2d.reshape(1, -1), ddof)
    if eps_mode == "add":
        return spread + eps
    if eps_mode == "inside":
        return np.hypot(spread, math.sqrt(eps))
    return np.where(spread < eps, np.inf, spread)


def _deviation(rewards2d: Array, ddof: int) -> Array:
    unit, power, scored, count = _in_units(rewards2d)
    mean = unit.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    squares = np.where(scored, unit - mean, 0.0) ** 2
    return np.ldexp(np.sqrt(squares.sum(axis=1, keepdims=True) / np.maximum(count - ddof, 1)), power)


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
    """Return (x − mean) / (std + eps) along the last axis, ignoring NaN; 0 at NaN, or where all values are equal."""
    scored = ~np.isnan(values)
    count = scored.sum(axis=-1, keepdims=True)
    largest = np.max(np.where(scored, values, -np.inf), axis=-1, keepdims=True)
    smallest = np.min(np.where(scored, values, np.inf), axis=-1, keepdims=True)
    moves = largest > smallest
    anchor = np.where(moves, smallest, 0.0)  # sums of differences to the smallest lose nothing to a common offset
    above = np.where(scored & moves, values - anchor, 0.0)
    centred = np.where(scored & moves, above - above.sum(axis=-1, keepdims=True) / np.maximum(count, 1), 0.0)
    unit = np.maximum(np.max(np.abs(centred), axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    spread = unit * np.sqrt(((centred / unit) ** 2).sum(axis=-1, keepdims=True) / np.maximum(count - ddof, 1))
    return np.divide(centred, spread + eps, out=np.zeros(values.shape), where=moves & scored)


def gae(
    rewards: Array,
    values: Array,
    *,
    gamma: float,
    lam: float,
    bootstrap: Array | None = None,
    terminal: Array | None = None,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> Array:
    """Generalised advantage estimates of the tokens of each row; slots without a token are skipped and give 0."""
    arguments.within("gamma", gamma, 0.0, 1.0)
    arguments.within("lam", lam, 0.0, 1.0)
    rows = _token_slots(np.shape(rewards), mask, lengths)
    reward, value = arguments.wide("rewards", rewards).reshape(-1), arguments.wide("values", values).reshape(-1)
    last = np.zeros(len(rows)) if bootstrap is None else arguments.wide("bootstrap", bootstrap, (len(rows),))
    ends = np.zeros(reward.shape, bool) if terminal is None else np.asarray(terminal, bool).reshape(-1)
    result = np.zeros(reward.shape)
    for slots, after in zip(rows, last, strict=True):
        result[slots] = backwards(reward[slots], value[slots], ends[slots], after, gamma, lam)
    return arguments.narrow(result.reshape(np.shape(rewards)), rewards)


def backwards(reward: Array, value: Array, ends: Array, last: float, gamma: float, lam: float) -> Array:
    """Return the estimates of one row of tokens, in np.longdouble."""
    following = np.append(value[1:], last) * ~ends
    deltas = reward.astype(np.longdouble) + np.longdouble(gamma) * following - value
    trace, advantage = np.longdouble(gamma) * np.longdouble(lam), np.longdouble(0.0)
    estimates = np.zeros(deltas.shape, np.longdouble)
    for token in reversed(range(len(deltas))):
        advantage = deltas[token] + trace * advantage * ~ends[token]
        estimates[token] = advantage
    return estimates.astype(np.float64)


def _token_slots(shape: tuple[int, ...], mask: Array | None, lengths: Array | None) -> list[Array]:
    """Return the slots of each row's tokens, numbered through the whole array."""
    slots = np.arange(math.prod(shape)).reshape(shape)
    if mask is not None:
        return [row[np.asarray(keep, bool)] for row, keep in zip(slots, mask, strict=True)]
    if lengths is None:
        return list(slots)
    if len(shape) == 1:
        if np.sum(lengths) != slots.size:
            raise ValueError(f"`lengths` sum to {np.sum(lengths)}, must sum to the {slots.size} elements of `rewards`")
        return np.split(slots, np.cumsum(lengths)[:-1])
    return [row[:length] for row, length in zip(slots, lengths, strict=True)]
