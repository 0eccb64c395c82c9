"""The plain NumPy implementation: what a careful user would write by hand, in the dtype of the data.

Narrow data is widened to float64 inside and rounded once at the end; float64 differences keep their rounding error
beside them. The functions between the ops are seams, where `gates prove` plants mistakes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import (
    logprobs,
    loss,
    packing,
    preference,
    sampling,
)
from gates.subjects.numpy_baseline import (
    ratio as numpy_ratio,
)
from gates.subjects.numpy_baseline import (
    rewards as numpy_rewards,
)
from gates.subjects.numpy_baseline import terms as common

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "filtered_logprobs": {"ties": ("lower-id",)},
    "policy_loss": {"algorithm": tuple(loss.SURROGATES)},
}


def _widen(name: str, value: Array, shape: tuple[int, ...] | None = None) -> Array:
    array = np.asarray(value)
    if array.dtype.kind != "f":
        raise ValueError(f"`{name}` has dtype {array.dtype}, must be a floating-point type")
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{name}` has shape {array.shape}, must be {shape}")
    return array.astype(np.float64)


def _narrow(result: Array, like: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        return result.astype(np.asarray(like).dtype.newbyteorder("="))


def _rounded(value: float, like: Array) -> float:
    return float(np.asarray(like).dtype.type(value))


def _one_of(name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` is {value!r}, must be one of {', '.join(map(repr, choices))}")


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
    _one_of("scale", scale, ("group", "batch", "none"))
    _one_of("baseline", baseline, ("mean", "leave-one-out"))
    if scale != "none":
        _one_of("ddof", ddof, (0, 1))
        _one_of("eps_mode", eps_mode, ("add", "inside", "threshold"))
        if eps is None or not 0.0 <= eps < math.inf:
            raise ValueError(f"`eps` is {eps}, must be finite and at least 0")
    grid = _group_grid(rewards, group_size, least=2 if baseline == "leave-one-out" else 1)
    unit, power, scored, count = _in_units(grid)
    total = unit.sum(axis=1, keepdims=True)
    others = total / np.maximum(count, 1) if baseline == "mean" else (total - unit) / np.maximum(count - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.ldexp(unit - others, power) / scale_divisor(grid, scale, ddof, eps, eps_mode)
    zero = ~scored | constant_groups(grid)[:, None]
    return _narrow(np.where(zero, 0.0, ratio).reshape(-1), rewards)


def _group_grid(rewards: Array, group_size: int, least: int) -> Array:
    flat = _widen("rewards", rewards)
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
    """Scale each row by a power of two, which keeps sums and squares in range and changes no bit of a mean."""
    scored = ~np.isnan(rewards2d)
    values = np.where(scored, rewards2d, 0.0)
    power = np.frexp(np.max(np.abs(values), axis=1, keepdims=True))[1]
    return np.ldexp(values, -power), power, scored, scored.sum(axis=1, keepdims=True)


def constant_groups(rewards2d: Array) -> Array:
    """Return for each group whether its scored rewards are all equal, one or none included."""
    highest = np.fmax.reduce(rewards2d, axis=1)
    return ~(highest > np.fmin.reduce(rewards2d, axis=1))


def scale_divisor(rewards2d: Array, scale: str, ddof: int | None, eps: float | None, eps_mode: str | None) -> Array:
    """Return what divides each group, broadcastable to (prompts, group_size); infinite below the threshold."""
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


def token_kl(
    policy: Array,
    reference: Array,
    *,
    estimator: str = "k3",
    mask: Array | None = None,
    lengths: Array | None = None,
    reduction: str = "none",
    old: Array | None = None,
    kl_ratio: str = "none",
) -> Array:
    """Sampled KL(policy || reference) per token, or its sum or mean per sequence, with d = reference - policy."""
    _one_of("kl_ratio", kl_ratio, ("none", "token", "sequence"))
    _one_of("estimator", estimator, ("k1", "k2", "k3"))
    _one_of("reduction", reduction, ("none", "sum", "mean"))
    left = _widen("policy", policy)
    right = _widen("reference", reference, left.shape)
    if left.ndim not in (1, 2):
        raise ValueError(f"`policy` has shape {left.shape}, must be (B, T), or (N,) with lengths")
    if left.ndim == 1 and lengths is None and (reduction != "none" or kl_ratio == "sequence"):
        raise ValueError("`lengths` is None, must say where the sequences of a 1-D array end")
    valid, starts = _valid_slots(left.shape, mask, lengths)
    high, low = common.difference(common.select(right, valid), common.select(left, valid))
    with np.errstate(over="ignore", invalid="ignore"):
        if estimator == "k1":
            terms = 0.0 - high
        elif estimator == "k2":
            terms = 0.5 * high * high
        else:
            value = common.k3(high)
            terms = value + np.where(np.isfinite(value), np.expm1(high), 0.0) * low
        if old is not None and kl_ratio != "none":
            behaviour = _widen("old", old, left.shape)
            terms = terms * kl_weights(
                common.select(left, valid), common.select(behaviour, valid), valid, starts, kl_ratio
            )
        if reduction == "none":
            return _narrow(terms, policy)
        rows, marks = (terms, valid) if left.ndim == 2 else (np.split(t, starts[1:-1]) for t in (terms, valid))
        sums, counts = np.array([row.sum() for row in rows]), np.array([row.sum() for row in marks])
    return _narrow(sums / np.maximum(counts, 1) if reduction == "mean" else sums, policy)


def kl_weights(policy: Array, old: Array, valid: Array, starts: Array, kl_ratio: str) -> Array:
    """Return exp(policy - old) of each token, or of the mean over the tokens of its sequence."""
    high, low = common.difference(policy, old)
    if kl_ratio == "sequence":
        rows = list(range(len(valid))) if valid.ndim == 2 else [slice(a, b) for a, b in pairwise(starts)]
        means = np.zeros((2, *valid.shape))
        for row in rows:
            terms = np.append(high[row], low[row]).tolist()  # masked slots are 0 here
            total = math.fsum(terms)
            means[:, row] = np.array([[total], [math.fsum([*terms, -total])]]) / max(1, np.count_nonzero(valid[row]))
        high, low = means
    return np.asarray(np.exp(high) * (1.0 + low))


def _valid_slots(shape: tuple[int, ...], mask: Array | None, lengths: Array | None) -> tuple[Array, Array]:
    if mask is not None and lengths is not None:
        raise ValueError("`mask` and `lengths` are both given, must be one of them")
    if lengths is None:
        return (np.ones(shape, bool) if mask is None else _boolean(mask, shape)), np.zeros(1, np.int64)
    counts = _whole(lengths)
    starts = np.concatenate([[0], np.cumsum(counts)])
    if len(shape) == 1:
        if starts[-1] != shape[0]:
            raise ValueError(f"`lengths` sum to {starts[-1]}, must sum to the {shape[0]} tokens of `policy`")
        return np.ones(shape, bool), starts
    if counts.shape != shape[:1] or counts.max(initial=0) > shape[1]:
        raise ValueError(f"`lengths` is {counts.tolist()}, must be {shape[0]} numbers of at most {shape[1]}")
    return np.arange(shape[1]) < counts[:, None], starts


def _boolean(mask: Array, shape: tuple[int, ...]) -> Array:
    array = np.asarray(mask)
    if array.shape != shape:
        raise ValueError(f"`mask` has shape {array.shape}, must be {shape}")
    if not np.all((array == 0) | (array == 1)):
        raise ValueError("`mask` must hold only 0 and 1")
    return array.astype(bool)


def _whole(lengths: Array | Sequence[int]) -> Array:
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"`lengths` is {array.dtype}{list(array.shape)}, must be integers of shape (B,)")
    if array.size and array.min() < 0:
        index = int(np.argmax(array < 0))
        raise ValueError(f"`lengths` is {array[index]} at index {index}, must be at least 0")
    return array.astype(np.int64)


def _named(names: tuple[str, ...], results: Any) -> dict[str, Any]:
    return dict(zip(names, results if isinstance(results, tuple) else (results,), strict=False))


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": lambda **inputs: {"advantages": group_advantages(**inputs)},
    "token_kl": lambda **inputs: {"kl": token_kl(**inputs)},
    "normalise_then_sum": lambda **inputs: {"advantages": numpy_rewards.normalise_then_sum(**inputs)},
    "full_kl": lambda **inputs: {"kl": logprobs.full_kl(**inputs)},
    "selective_log_softmax": lambda **inputs: _named(("logprobs", "entropy"), logprobs.selective_log_softmax(**inputs)),
    "selective_log_softmax_backward": lambda **inputs: {"gradient": logprobs.selective_log_softmax_backward(**inputs)},
    "filtered_logprobs": lambda **inputs: {"logprobs": sampling.filtered_logprobs(**inputs)},
    "sample_tokens": lambda **inputs: _named(("tokens", "logprobs"), sampling.sample_tokens(**inputs)),
    "philox4x32_10": lambda **inputs: {"words": sampling.philox4x32_10(**inputs)},
    "uniforms": lambda **inputs: {"uniforms": sampling.uniforms(**inputs)},
    "xtc_coins": lambda **inputs: {"uniforms": sampling.xtc_coins(**inputs)},
    "pack_sequences": lambda **inputs: _named(("indices", "offsets", "efficiency"), packing.pack_sequences(**inputs)),
    "policy_loss": lambda **inputs: dict(zip(("loss", "gradient"), loss.policy_loss(**inputs), strict=True)),
    "importance_ratio": lambda **inputs: {"ratio": numpy_ratio.importance_ratio(**inputs)},
    "importance_weights": lambda **inputs: {"weights": numpy_ratio.importance_weights(**inputs)},
    "ratio_statistics": numpy_ratio.ratio_statistics,
    "preference_loss": lambda **inputs: _named(("loss", "gradient"), preference.preference_loss(**inputs)),
    "kto_loss": lambda **inputs: _named(("loss", "gradient"), preference.kto_loss(**inputs)),
    "prefer": lambda **inputs: {"signs": preference.prefer(**inputs)},
    "best_of_n": lambda **inputs: {"rows": preference.best_of_n(**inputs)},
}
