"""Textbook programs of importance ratios, off-policy weights and their statistics, in the data's dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from reference.textbook.number import (
    Bools,
    Floats,
    Number,
    absolute,
    clip,
    constant,
    exp,
    expm1,
    maximum,
    minimum,
    where,
    widest,
)
from reference.textbook.rows import back, grid, slots


def importance_ratio(
    policy: npt.ArrayLike,
    old: npt.ArrayLike,
    *,
    level: str,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return the limits of `ratio`: of a sequence by the sum of differences, and by the difference of sums.

    Args:
        policy: (B, T), or (N,) with lengths: float32 or float64 log-probs.
        old: log-probs of the same shape and dtype.
        level: "token", "seq_mean" or "seq_sum".
        mask: (B, T), or None.
        lengths: (B,), or None.

    Returns:
        `ratio`: float64, of the shape of `policy` at the level of tokens, else (B,); inf where it may overflow.

    Source: TRL's GRPOTrainer (token, sequence) and RLOOTrainer, which sums log-probs before it subtracts them.
    """
    shape = np.shape(policy)
    valid, place = slots(shape, mask, lengths)
    forms = list(_ratios(grid(policy, valid, place), grid(old, valid, place), valid, level))
    if level == "token":
        return {"ratio": back(widest(forms), place, shape)}
    return {"ratio": widest(forms)}


def importance_weights(
    old: npt.ArrayLike,
    sampling: npt.ArrayLike,
    *,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return the limits of `weights`. Where a ratio lies within its own error of a bound of MIS, 0 and it are admitted.

    Args:
        old: (B, T), or (N,) with lengths: float32 or float64 log-probs.
        sampling: log-probs of the same shape and dtype; NaN is a difference of 0.
        correction: "tis" or "mis".
        level: "token" or "seq_sum".
        c_min: lower bound, or None.
        c_max: upper bound.
        mask: (B, T), or None.
        lengths: (B,), or None.

    Returns:
        `weights`: float64, of the shape of `old` at the level of tokens, else (B,); inf where a ratio may overflow.

    Source: TRL's GRPOTrainer, `vllm_importance_sampling_mode`.
    """
    shape = np.shape(old)
    valid, place = slots(shape, mask, lengths)
    recorded = np.where(np.isnan(sampling), old, sampling).astype(np.asarray(old).dtype)
    low, high = (_scalar(c, np.asarray(old).dtype) for c in (0.0 if c_min is None else c_min, c_max))
    forms = []
    for ratio in _ratios(grid(old, valid, place), grid(recorded, valid, place), valid, level):
        kept = clip(ratio, low, high) if correction == "tis" else where((ratio >= low) & (ratio <= high), ratio, 0.0)
        forms.append(where(valid, kept, 0.0) if level == "token" else kept)
    return {"weights": back(widest(forms), place, shape) if level == "token" else widest(forms)}


def ratio_statistics(
    policy: npt.ArrayLike,
    behaviour: npt.ArrayLike,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: npt.ArrayLike | None,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return the limit of every statistic by its name.

    Args:
        policy: (B, T), or (N,) with lengths: float32 or float64 log-probs.
        behaviour: log-probs of the policy that sampled, of the same shape and dtype.
        epsilon_low: lower clip width.
        epsilon_high: upper clip width.
        advantages: (B,), or None: no limits of `clipped_*`.
        mask: (B, T), or None.
        lengths: (B,), or None.

    Returns:
        Scalars by name; inf where a ratio may overflow.

    Source: docs/definitions.md, "Ratio statistics".
    """
    shape = np.shape(policy)
    valid, place = slots(shape, mask, lengths)
    lp, other = grid(policy, valid, place), grid(behaviour, valid, place)
    some = valid.any(axis=1)
    signs = None if advantages is None else np.sign(np.asarray(advantages, np.float64))
    of_tokens = None if signs is None else np.broadcast_to(signs[:, None], valid.shape)[valid]
    bounds = 1.0 - _scalar(epsilon_low, lp.dtype), 1.0 + _scalar(epsilon_high, lp.dtype)
    found = _moments([(lp - other)[valid]], bounds, of_tokens)
    sums = [total[some] for total in _sums(lp, other)]
    of_rows = _moments(sums, bounds, None if signs is None else signs[some])
    found |= {f"seq_sum_{name}": limit for name, limit in of_rows.items()}
    for name, pick in (("min_sequence_ratio", minimum), ("max_sequence_ratio", maximum)):
        found[name] = widest([_extreme(exp(total), pick) for total in sums])
    return found


def _scalar(value: float, dtype: npt.DTypeLike) -> Number:
    """A setting: one that the dtype cannot hold is rounded to it by some programs and not by others."""
    rounded = constant(value, str(np.dtype(dtype).newbyteorder("=")))
    return rounded if float(rounded.value) == value else rounded.plus_relative(1.0)


def _sums(policy: Number, old: Number) -> tuple[Number, Number]:
    """Return Σ(policy − old) of each row, (B,), in both usual forms."""
    return (policy - old).sum(axis=1), policy.sum(axis=1) - old.sum(axis=1)


def _ratios(policy: Number, old: Number, valid: Bools, level: str) -> Iterator[Number]:
    if level == "token":
        yield where(valid, exp(policy - old), 0.0)
        return
    tokens = np.maximum(valid.sum(axis=1), 1).astype(np.float64)
    for total in _sums(policy, old):
        yield exp(total / tokens if level == "seq_mean" else total)


def _moments(moved: list[Number], bounds: tuple[Number, Number], signs: Floats | None) -> dict[str, Floats]:
    """Return the limits over (n,) log-ratios, each given in several forms."""
    by_form = [_of(d, bounds, signs) for d in moved]
    return {name: widest([x for found in by_form for x in found[name]]) for name in by_form[0]}


def _of(d: Number, bounds: tuple[Number, Number], signs: Floats | None) -> Mapping[str, list[Number]]:
    r, size = exp(d), absolute(d)
    shifted = exp(d - _extreme(d, maximum))
    below, above = r < bounds[0], r > bounds[1]
    found = {
        "mean": [r.mean()],
        "max_abs": [_extreme(size, maximum)],
        "p99_abs": _percentile(size),
        "k3": _usable([(expm1(d) - d).mean(), (r - d - 1.0).mean(), (r - 1.0 - d).mean()]),
        "chi2": _usable([expm1(2.0 * d).mean(), (exp(2.0 * d) - 1.0).mean(), (r * r).mean() - 1.0]),
        "ess_per_n": [_effective(r), _effective(shifted), _effective(r / r.sum())],
        "mult_err": [exp(size).mean(), maximum(r, 1.0 / r).mean()],
        "outside_low": [where(below, 1.0, constant(np.zeros(d.shape), d.dtype)).mean()],
        "outside_high": [where(above, 1.0, constant(np.zeros(d.shape), d.dtype)).mean()],
    }
    if signs is not None:
        found["clipped_low"] = [where(below & (signs < 0.0), 1.0, constant(np.zeros(d.shape), d.dtype)).mean()]
        found["clipped_high"] = [where(above & (signs > 0.0), 1.0, constant(np.zeros(d.shape), d.dtype)).mean()]
    return found


def _effective(ratios: Number) -> Number:
    """Kong's (Σr)² / (n Σr²)."""
    total = ratios.sum()
    return total * total / (float(ratios.value.size) * (ratios * ratios).sum())


def _percentile(values: Number) -> list[Number]:
    """The value at position 0.99 (n − 1) of the sorted ones; an order statistic errs by the largest error of a value."""
    order = np.argsort(values.value)
    worst, void = values.error.max(), values.void.any()
    place = constant(0.99, values.dtype).plus_relative(1.0) * float(values.value.size - 1)
    below = int(np.floor(place.value))
    ends = order[below], order[min(below + 1, order.size - 1)]
    left, right = (Number(values.value[end], values.dtype, worst, void) for end in ends)
    share = place - float(below)
    return [left + (right - left) * share, left * (1.0 - share) + right * share]


def _extreme(values: Number, pick: Callable[[Number, Number], Number]) -> Number:
    """The largest or smallest of (n,) numbers."""
    while values.value.size > 1:
        half = values.value.size // 2
        paired = pick(values[:half], values[half : 2 * half])
        rest = values[2 * half :]
        values = paired if not rest.value.size else _joined(paired, rest)
    return values[0]


def _joined(first: Number, second: Number) -> Number:
    parts = ((getattr(first, name), getattr(second, name)) for name in ("value", "error", "void"))
    value, error, void = (np.concatenate(pair) for pair in parts)
    return Number(value, first.dtype, error, void)


MOST = 1e-2  # of the value: a form whose limit is larger is not used there, its digits cancel


def _usable(forms: list[Number]) -> list[Number]:
    """Return the forms whose limit stays below 1% of the value, or all where none does."""
    return [form for form in forms if form.limit() <= MOST * np.abs(form.value)] or forms
