"""Importance ratios, weights and statistics in plain NumPy, in the dtype of the data: never to be called wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def _padded(mask: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
    """Return the mask and the arrays as (B, T), and which slots the arrays had."""
    shape = arrays[0].shape
    if len(shape) == 1:
        mask = place = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        wide = []
        for x in arrays:
            wide.append(np.zeros(mask.shape, x.dtype))
            wide[-1][mask] = x
        return mask, place, wide
    if lengths is not None:
        mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    return np.ones(shape, bool) if mask is None else mask, np.ones(shape, bool), arrays


def importance_ratio(*, policy: Any, old: Any, level: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
    """Take exp of a difference, of its masked mean, or of its masked sum."""
    mask, place, (left, right) = _padded(mask, lengths, policy, old)
    difference = left - right
    if level == "token":
        return {"ratio": (np.exp(difference) * mask)[place].reshape(policy.shape)}
    total = (difference * mask).sum(axis=1)
    if level == "seq_mean":
        total = total / np.maximum(mask.sum(axis=1), 1).astype(policy.dtype)
    return {"ratio": np.exp(total)}


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
    difference = (left - right) * mask
    ratio = np.exp(difference if level == "token" else difference.sum(axis=1))
    if correction == "tis":
        weights = np.clip(ratio, c_min, c_max)
    else:
        weights = np.where((ratio >= (c_min or 0.0)) & (ratio <= c_max), ratio, 0)
    return {"weights": (weights * mask)[place].reshape(old.shape) if level == "token" else weights}


def _statistics(d: Any, low: Any, high: Any, signs: Any) -> dict[str, Any]:
    r = np.exp(d)
    found = {
        "mean": r.mean(),
        "max_abs": np.abs(d).max(),
        "p99_abs": np.quantile(np.abs(d), 0.99),
        "k3": (r - 1 - d).mean(),
        "chi2": (r**2).mean() - 1,
        "ess_per_n": r.sum() ** 2 / (r.size * (r**2).sum()),
        "mult_err": np.exp(np.abs(d)).mean(),
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
    difference = left - right
    bounds = 1 - epsilon_low, 1 + epsilon_high
    by_token = None if advantages is None else np.repeat(advantages, mask.sum(axis=1))
    found = _statistics(difference[mask], *bounds, by_token)
    rows = mask.any(axis=1)
    sums = (difference * mask).sum(axis=1)[rows]
    of_rows = _statistics(sums, *bounds, None if advantages is None else advantages[rows])
    found |= {f"seq_sum_{name}": x for name, x in of_rows.items()}
    found |= {"min_sequence_ratio": np.exp(sums).min(), "max_sequence_ratio": np.exp(sums).max()}
    return {name: float(x) for name, x in found.items()}


OPS = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "ratio_statistics": ratio_statistics,
}
