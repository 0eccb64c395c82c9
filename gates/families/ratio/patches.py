"""Mutations of ratios, off-policy weights and their statistics; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation


@mutation
def swapped_pair(original: Fn, policy: Any, old: Any, **rest: Any) -> Any:
    """Take old over policy."""
    return original(old, policy, **rest)


@mutation
def sum_for_mean(original: Fn, policy: Any, old: Any, *, level: str, **rest: Any) -> Any:
    """Take the product where the geometric mean is asked for."""
    return original(policy, old, level="seq_sum" if level == "seq_mean" else level, **rest)


@mutation
def padded_mean(original: Fn, policy: Any, old: Any, tokens: Any) -> Any:
    """Divide a row's sum by its padded width."""
    return original(policy, old, tokens if np.ndim(tokens) == 0 else np.full_like(tokens, policy.shape[1]))


@mutation
def clamped_difference(original: Fn, high: Any, low: Any) -> Any:
    """Clamp log-ratios before exp."""
    return original(np.clip(high, -1.0, 1.0), low)


@mutation
def float32_difference(_original: Fn, left: Any, right: Any) -> Any:
    """Subtract in float32."""
    high = (left.astype(np.float32) - right.astype(np.float32)).astype(np.float64)
    return high, np.zeros_like(high)


@mutation
def rounded_difference(original: Fn, left: Any, right: Any) -> Any:
    """Forget what the rounding lost."""
    high, low = original(left, right)
    return high, np.zeros_like(low)


@mutation
def exclusive_bounds(original: Fn, ratio: Any, correction: str, low: float, high: float) -> Any:
    """Drop a ratio that is exactly a bound of MIS."""
    if correction == "tis":
        return original(ratio, correction, low, high)
    return np.where((ratio > low) & (ratio < high), ratio, 0.0)


@mutation
def lower_bound_ignored(original: Fn, ratio: Any, correction: Any, low: Any, high: Any) -> Any:
    """Hold ratios back from above only."""
    return original(ratio, correction, low * 0.0, high)


@mutation
def lower_bound_invented(original: Fn, ratio: Any, correction: Any, low: Any, high: Any) -> Any:
    """Assume the interval to be symmetric in log space where no lower bound is given."""
    return original(ratio, correction, low or 1.0 / high, high)


@mutation
def clamp_for_mask(original: Fn, ratio: Any, _: Any, low: Any, high: Any) -> Any:
    """Clamp where MIS drops."""
    return original(ratio, "tis", low, high)


@mutation
def unrecorded_is_impossible(_original: Fn, old: Any, sampling: Any) -> Any:
    """Count what was not recorded as probability 0."""
    return np.where(np.isnan(sampling), -1e4 + old * 0.0, sampling)


@mutation
def unrecorded_is_certain(_original: Fn, old: Any, sampling: Any) -> Any:
    """Count what was not recorded as probability 1."""
    return np.where(np.isnan(sampling), old * 0.0, sampling)


@mutation
def swapped_levels(original: Fn, old: Any, sampling: Any, *, level: str, **rest: Any) -> Any:
    """Answer at the level that was not asked for."""
    return original(old, sampling, level="token" if level == "seq_sum" else "seq_sum", **rest)


@mutation
def reversed_mismatch(original: Fn, high: Any, low: Any) -> Any:
    """Estimate the divergence in the other direction."""
    return original(-high, -low)


@mutation
def nearest_rank(_original: Fn, values: Any) -> Any:
    """Take an element for a quantile."""
    return float(np.sort(values)[min(int(0.99 * values.size), values.size - 1)])


@mutation
def population_quantile(_original: Fn, values: Any) -> Any:
    """Interpolate around 0.99·n."""
    return float(np.quantile(values, 0.99, method="interpolated_inverted_cdf"))


@mutation
def clamped_ess(original: Fn, high: Any, low: Any) -> Any:
    """Measure the effective sample size of clamped ratios."""
    return original(np.clip(high, -0.2, 0.2), low)


@mutation
def second_moment(original: Fn, high: Any, low: Any) -> Any:
    """Report the mean of r² for χ²."""
    return original(high, low) + 1.0


@mutation
def outside_for_clipped(original: Fn, ratio: Any, lower: float, upper: float, advantages: Any) -> Any:
    """Count every ratio outside the range as clipped."""
    found = original(ratio, lower, upper, advantages)
    if advantages is None:
        return found
    return {
        **found,
        **{name.replace("outside", "clipped"): found[name] for name in ("outside_low", "outside_high")},
    }


@mutation
def clipped_signs_swapped(original: Fn, ratio: Any, lower: Any, upper: Any, advantages: Any) -> Any:
    """Count the sides that a clip leaves alone."""
    return original(ratio, lower, upper, None if advantages is None else -advantages)


@mutation
def padding_counts(original: Fn, policy: Any, behaviour: Any, *, mask: Any = None, **rest: Any) -> Any:
    """Let padding in as ratios of 1."""
    if mask is None:
        return original(policy, behaviour, mask=None, **rest)
    filled = [np.where(mask, x, x.dtype.type(-1.0)) for x in (policy, behaviour)]
    return original(*filled, mask=np.ones_like(mask), **rest)
