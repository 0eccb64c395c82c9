"""Importance ratios, weights and statistics in MLX, in float32: its exp of float64 has the accuracy of float32."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    name: {"dtype": ("float32",)} for name in ("importance_ratio", "importance_weights", "ratio_statistics")
}
mx.set_default_device(mx.cpu)


def _array(x: Any) -> Any:
    return mx.array(np.ascontiguousarray(x), dtype=mx.float32)


def _padded(mask: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
    """Return the mask and the arrays as (B, T), and which slots the arrays had."""
    shape = arrays[0].shape
    if len(shape) == 1:
        place = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        wide = []
        for x in arrays:
            grid = np.zeros(place.shape, x.dtype)
            grid[place] = x
            wide.append(_array(grid))
        return mx.array(place), place, wide
    if lengths is not None:
        mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    keep = np.ones(shape, bool) if mask is None else mask
    return mx.array(keep), np.ones(shape, bool), [_array(x) for x in arrays]


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Take exp of a difference, of its masked mean, or of its masked sum."""
    mask, place, (left, right) = _padded(mask, lengths, policy, old)
    difference = mx.where(mask, left - right, mx.zeros_like(left))
    if level == "token":
        return {"ratio": np.array(mx.exp(difference) * mask)[place].reshape(policy.shape)}
    total = difference.sum(axis=1)
    if level == "seq_mean":
        total = total / mx.maximum(mask.sum(axis=1), 1)
    return {"ratio": np.array(mx.exp(total))}


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
    """Clip a ratio, or drop it outside its bounds."""
    mask, place, (left, right) = _padded(mask, lengths, old, sampling)
    difference = mx.where(mask, left - right, mx.zeros_like(left))
    ratio = mx.exp(difference if level == "token" else difference.sum(axis=1))
    if correction == "tis":
        weights = mx.clip(ratio, c_min, c_max)
    else:
        outside = ratio > c_max if c_min is None else (ratio > c_max) | (ratio < c_min)
        weights = mx.where(outside, mx.zeros_like(ratio), ratio)
    return {"weights": np.array(weights * mask)[place].reshape(old.shape) if level == "token" else np.array(weights)}


def _statistics(d: Any, low: Any, high: Any, signs: Any) -> dict[str, Any]:
    r, n = mx.exp(d), d.size
    ordered = mx.sort(mx.abs(d))
    place = 0.99 * (n - 1)
    below = int(place)
    left, right = ordered[below], ordered[min(below + 1, n - 1)]
    found = {
        "mean": r.mean(),
        "max_abs": mx.abs(d).max(),
        "p99_abs": left + (right - left) * (place - below),
        "k3": (r - d - 1).mean(),
        "chi2": (mx.square(r) - 1).mean(),
        "ess_per_n": mx.square(r.mean()) / mx.square(r).mean(),
        "mult_err": mx.exp(mx.abs(d)).mean(),
        "outside_low": (r < low).mean(),
        "outside_high": (r > high).mean(),
    }
    if signs is not None:
        found |= {"clipped_low": ((r < low) & (signs < 0)).mean(), "clipped_high": ((r > high) & (signs > 0)).mean()}
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
    """Describe the ratios of tokens, and of rows by their summed log-ratios."""
    mask, _, (left, right) = _padded(mask, lengths, policy, behaviour)
    keep = np.array(mask)
    tokens = mx.array(np.flatnonzero(keep))
    difference = left - right
    bounds = 1 - epsilon_low, 1 + epsilon_high
    by_token = None if advantages is None else _array(np.repeat(advantages, keep.sum(axis=1)))
    found = _statistics(difference.reshape(-1)[tokens], *bounds, by_token)
    rows = keep.any(axis=1)
    sums = mx.where(mask, difference, mx.zeros_like(difference)).sum(axis=1)[mx.array(np.flatnonzero(rows))]
    of_rows = _statistics(sums, *bounds, None if advantages is None else _array(advantages[rows]))
    found |= {f"seq_sum_{name}": x for name, x in of_rows.items()}
    found |= {"min_sequence_ratio": mx.exp(sums).min(), "max_sequence_ratio": mx.exp(sums).max()}
    return {name: x.item() for name, x in found.items()}


OPS = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "ratio_statistics": ratio_statistics,
}
