"""Importance ratios in NumPy as other authors write them: sums before differences, row by row, running sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {"importance_weights": {"nan_sampling": ("unrecorded",)}}


def _rows(mask: Any, lengths: Any, *arrays: Any) -> Iterator[Any]:
    """Yield for each row its slots in the flattened arrays."""
    shape = arrays[0].shape
    numbers = np.arange(arrays[0].size)
    if len(shape) == 1:
        yield from np.split(numbers, np.cumsum(lengths)[:-1])
    elif lengths is not None:
        yield from (row[:length] for row, length in zip(numbers.reshape(shape), lengths, strict=True))
    else:
        keep = np.ones(shape, bool) if mask is None else mask
        yield from (row[kept] for row, kept in zip(numbers.reshape(shape), keep, strict=True))


def _sum(x: Any) -> Any:
    """Add up in a loop, in the dtype of the numbers."""
    total = x.dtype.type(0)
    for number in x:
        total = total + number
    return total


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Take the sums of both policies before the difference, as TRL's RLOO does."""
    left, right = policy.reshape(-1), old.reshape(-1)
    rows = list(_rows(mask, lengths, policy))
    if level == "token":
        out = np.zeros_like(left)
        for row in rows:
            out[row] = np.exp(left[row] - right[row])
        return {"ratio": out.reshape(policy.shape)}
    found = []
    for row in rows:
        moved = _sum(left[row]) - _sum(right[row])
        found.append(np.exp(moved / policy.dtype.type(max(len(row), 1)) if level == "seq_mean" else moved))
    return {"ratio": np.array(found, policy.dtype)}


def importance_weights(
    *,
    old: Any,
    sampling: Any,
    correction: Any,
    level: Any,
    c_min: Any,
    c_max: Any,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Compute the ratio first and hold it back afterwards."""
    sampling = np.where(np.isnan(sampling), old, sampling)  # not recorded
    ratio = importance_ratio(policy=old, old=sampling, level=level, mask=mask, lengths=lengths)["ratio"]
    low = 0.0 if c_min is None else c_min
    if correction == "tis":
        held = np.minimum(np.maximum(ratio, old.dtype.type(low)), old.dtype.type(c_max))
    else:
        held = np.where((ratio < low) | (ratio > c_max), old.dtype.type(0), ratio)
    if level == "token":
        inside = np.zeros(old.size, bool)
        inside[np.concatenate(list(_rows(mask, lengths, old)))] = True
        held = np.where(inside.reshape(old.shape), held, 0)
    return {"weights": held.astype(old.dtype)}


def _statistics(d: Any, low: Any, high: Any, signs: Any) -> dict[str, Any]:
    kind = d.dtype.type
    n = kind(len(d))
    r = np.exp(d)
    ordered = np.sort(np.abs(d))
    place = kind(0.99) * (n - kind(1))
    below = int(place)
    share = place - kind(below)
    weights = r / _sum(r)
    found = {
        "mean": _sum(r) / n,
        "max_abs": ordered[-1],
        "p99_abs": (1 - share) * ordered[below] + share * ordered[min(below + 1, len(d) - 1)],
        "k3": _sum(np.expm1(d) - d) / n,
        "chi2": _sum(r * r - kind(1)) / n,
        "ess_per_n": kind(1) / (n * _sum(weights * weights)),
        "mult_err": _sum(np.maximum(r, kind(1) / r)) / n,
        "outside_low": kind(np.sum(r < low)) / n,
        "outside_high": kind(np.sum(r > high)) / n,
    }
    if signs is not None:
        found["clipped_low"] = kind(np.sum((r < low) & (signs < 0))) / n
        found["clipped_high"] = kind(np.sum((r > high) & (signs > 0))) / n
    return found


def ratio_statistics(
    *,
    policy: Any,
    behaviour: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    advantages: Any,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Walk through the rows; the ratio of a row is that of its summed log-probs."""
    kind = policy.dtype.type
    bounds = kind(1) - kind(epsilon_low), kind(1) + kind(epsilon_high)
    left, right = policy.reshape(-1), behaviour.reshape(-1)
    tokens, sums, of_tokens, of_rows = [], [], [], []
    for i, row in enumerate(_rows(mask, lengths, policy)):
        if not len(row):
            continue
        tokens.append(left[row] - right[row])
        sums.append(_sum(left[row]) - _sum(right[row]))
        if advantages is not None:
            of_tokens.append(np.full(len(row), advantages[i]))
            of_rows.append(advantages[i])
    known = advantages is not None
    sums = np.array(sums, policy.dtype)
    found = _statistics(np.concatenate(tokens), *bounds, np.concatenate(of_tokens) if known else None)
    by_row = _statistics(sums, *bounds, np.array(of_rows) if known else None)
    found |= {f"seq_sum_{name}": x for name, x in by_row.items()}
    found |= {"min_sequence_ratio": np.exp(sums.min()), "max_sequence_ratio": np.exp(sums.max())}
    return {name: float(x) for name, x in found.items()}


OPS = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "ratio_statistics": ratio_statistics,
}
