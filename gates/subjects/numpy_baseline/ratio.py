"""The NumPy baseline's importance ratios, off-policy corrections and their statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments, terms

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def token_ratio(policy: Array, old: Array) -> Array:
    """Return exp(policy - old) per token."""
    return terms.exponential(*terms.difference(policy, old))


def sequence_ratio(policy: Array, old: Array, tokens: Array | int) -> Array:
    """Return exp(Σ(policy - old) / tokens) of each row, (B, 1): a geometric mean, or with tokens = 1 the product."""
    return terms.exponential(*terms.mean_of_rows(*terms.difference(policy, old), tokens))


def importance_ratio(
    policy: Array, old: Array, *, level: str, mask: Array | None = None, lengths: Array | None = None
) -> Array:
    """Return exp of policy - old per token, of its mean per sequence, or of its sum."""
    arguments.one_of("level", level, ("token", "seq_mean", "seq_sum"))
    where = terms.slots(np.shape(policy), mask, lengths)
    left, right = (terms.select(where.wide(name, x), where.valid) for name, x in (("policy", policy), ("old", old)))
    if level == "token":
        return where.narrow(terms.select(token_ratio(left, right), where.valid), policy)
    tokens = where.valid.sum(axis=1, keepdims=True)
    return arguments.narrow(sequence_ratio(left, right, tokens if level == "seq_mean" else 1)[:, 0], policy)


def recorded(old: Array, sampling: Array) -> Array:
    """Return the sampler's log-probs, or the trainer's where the sampler recorded none (NaN)."""
    return np.where(np.isnan(sampling), old, sampling)


def corrected(ratio: Array, correction: str, low: float, high: float) -> Array:
    """Return TIS's clamped ratio, or MIS's, which is 0 outside the inclusive bounds."""
    if correction == "tis":
        return np.clip(ratio, low, high)
    return np.where((ratio < low) | (ratio > high), 0.0, ratio)


def importance_weights(
    old: Array,
    sampling: Array,
    *,
    correction: str,
    level: str,
    c_min: float | None = None,
    c_max: float,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> Array:
    """Return the weights that correct for the sampler's distribution, per token or per sequence."""
    arguments.one_of("correction", correction, ("tis", "mis"))
    arguments.one_of("level", level, ("token", "seq_sum"))
    like = np.asarray(old)
    low = 0.0 if c_min is None else float(like.dtype.type(c_min))
    high = float(like.dtype.type(c_max))
    if not 0.0 <= low <= high < math.inf or high == 0.0:
        raise ValueError(f"`c_min`, `c_max` are {c_min}, {c_max}, must be in order, finite and not negative")
    where = terms.slots(like.shape, mask, lengths)
    left = terms.select(where.wide("old", old), where.valid)
    right = terms.select(recorded(left, where.wide("sampling", sampling)), where.valid)
    if level == "token":
        weights = corrected(token_ratio(left, right), correction, low, high)
        return where.narrow(terms.select(weights, where.valid), old)
    return arguments.narrow(corrected(sequence_ratio(left, right, 1)[:, 0], correction, low, high), old)


def ratio_statistics(
    policy: Array,
    behaviour: Array,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: Array | None = None,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> dict[str, float]:
    """Return statistics of D = policy - behaviour: per token, per sequence (`seq_sum_*`), and the extremes."""
    like = np.asarray(policy)
    where = terms.slots(like.shape, mask, lengths)
    if not np.any(where.valid):
        raise ValueError(f"`mask` of shape {where.valid.shape} holds no token, must hold at least one")
    left, right = (
        terms.select(where.wide(name, x), where.valid) for name, x in (("policy", policy), ("behaviour", behaviour))
    )
    arguments.within("epsilon_low", epsilon_low, 0.0)
    arguments.within("epsilon_high", epsilon_high, 0.0)
    low, high = (1.0 + sign * float(like.dtype.type(e)) for sign, e in ((-1, epsilon_low), (1, epsilon_high)))
    gains = None if advantages is None else arguments.wide("advantages", advantages, (len(where.valid),))
    moved = terms.difference(left, right)
    rows = where.valid.any(axis=1)
    by_token = None if gains is None else np.broadcast_to(gains[:, None], where.valid.shape)[where.valid]
    tokens = _moments(moved[0][where.valid], moved[1][where.valid], low, high, by_token)
    sums, rests = (part[rows, 0] for part in terms.mean_of_rows(*moved, 1))
    sequences = _moments(sums, rests, low, high, None if gains is None else gains[rows])
    ratios = terms.exponential(sums, rests)
    ends = {"min_sequence_ratio": float(ratios.min()), "max_sequence_ratio": float(ratios.max())}
    return {**tokens, **{f"seq_sum_{name}": x for name, x in sequences.items()}, **ends}


def _moments(high: Array, low: Array, lower: float, upper: float, gains: Array | None) -> dict[str, float]:
    ratio = terms.exponential(high, low)
    size, slack = np.abs(high), np.sign(high) * low
    return {
        "mean": terms.total(ratio) / ratio.size,
        "max_abs": float(size.max()),
        "p99_abs": quantile(size),
        "k3": terms.total(mismatch(high, low)) / size.size,
        "chi2": chi_squared(high, low),
        "ess_per_n": effective_share(high, low),
        "mult_err": terms.total(terms.exponential(size, slack)) / size.size,
        **shares(ratio, lower, upper, gains),
    }


def quantile(values: Array) -> float:
    """Return the 99th percentile, interpolated between the two values around position 0.99 (n - 1)."""
    ordered = np.sort(values)
    position, over = divmod(99 * (values.size - 1), 100)
    after = ordered[min(position + 1, values.size - 1)]
    return float(ordered[position] + (after - ordered[position]) * (over / 100.0))


def mismatch(high: Array, low: Array) -> Array:
    """Return k3(D): an estimate of KL(behaviour || policy) from samples of the behaviour policy."""
    value = terms.k3(high)
    with np.errstate(over="ignore", invalid="ignore"):
        return value + np.where(np.isfinite(value), np.expm1(high) * low, 0.0)


def chi_squared(high: Array, low: Array) -> float:
    """Return the mean of r² - 1, as expm1(2 D)."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.expm1(2.0 * high)
        return terms.total(value + np.where(np.isfinite(value), 2.0 * (value + 1.0) * low, 0.0)) / high.size


def effective_share(high: Array, low: Array) -> float:
    """Return Kong's effective sample size divided by n; a common scale of the ratios cancels."""
    relative = terms.exponential(high - high.max(), low)
    return terms.total(relative) ** 2 / (relative.size * terms.total(relative * relative))


def shares(ratio: Array, lower: float, upper: float, gains: Array | None) -> dict[str, float]:
    """Return the shares of ratios outside the clip range, and of clipped ratios given the sign of A."""
    below, above = ratio < lower, ratio > upper
    result = {"outside_low": below, "outside_high": above}
    if gains is not None:
        result |= {"clipped_low": below & (gains < 0.0), "clipped_high": above & (gains > 0.0)}
    return {name: float(np.count_nonzero(x) / ratio.size) for name, x in result.items()}
