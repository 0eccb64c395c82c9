"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def swapped_pair(original: Fn) -> Fn:
    """Take old over policy."""
    return lambda policy, old, **rest: original(old, policy, **rest)


def sum_for_mean(original: Fn) -> Fn:
    """Take the product where the geometric mean is asked for."""

    def mistaken(policy: Any, old: Any, *, level: str, **rest: Any) -> Any:
        return original(policy, old, level="seq_sum" if level == "seq_mean" else level, **rest)

    return mistaken


def padded_mean(original: Fn) -> Fn:
    """Divide a row's sum by its padded width."""

    def mistaken(policy: Any, old: Any, tokens: Any) -> Any:
        return original(policy, old, tokens if np.ndim(tokens) == 0 else np.full_like(tokens, policy.shape[1]))

    return mistaken


def clamped_difference(original: Fn) -> Fn:
    """Clamp log-ratios before exp."""
    return lambda high, low: original(np.clip(high, -1.0, 1.0), low)


def float32_difference(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Subtract in float32."""

    def mistaken(left: Any, right: Any) -> Any:
        high = (left.astype(np.float32) - right.astype(np.float32)).astype(np.float64)
        return high, np.zeros_like(high)

    return mistaken


def rounded_difference(original: Fn) -> Fn:
    """Forget what the rounding lost."""

    def mistaken(left: Any, right: Any) -> Any:
        high, low = original(left, right)
        return high, np.zeros_like(low)

    return mistaken


def exclusive_bounds(original: Fn) -> Fn:
    """Drop a ratio that is exactly a bound of MIS."""

    def mistaken(ratio: Any, correction: str, low: float, high: float) -> Any:
        if correction == "tis":
            return original(ratio, correction, low, high)
        return np.where((ratio > low) & (ratio < high), ratio, 0.0)

    return mistaken


def lower_bound_ignored(original: Fn) -> Fn:
    """Hold ratios back from above only."""
    return lambda ratio, correction, low, high: original(ratio, correction, low * 0.0, high)


def lower_bound_invented(original: Fn) -> Fn:
    """Assume the interval to be symmetric in log space where no lower bound is given."""
    return lambda ratio, correction, low, high: original(ratio, correction, low or 1.0 / high, high)


def clamp_for_mask(original: Fn) -> Fn:
    """Clamp where MIS drops."""
    return lambda ratio, _, low, high: original(ratio, "tis", low, high)


def unrecorded_is_impossible(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Count what was not recorded as probability 0."""
    return lambda old, sampling: np.where(np.isnan(sampling), -1e4 + old * 0.0, sampling)


def unrecorded_is_certain(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Count what was not recorded as probability 1."""
    return lambda old, sampling: np.where(np.isnan(sampling), old * 0.0, sampling)


def swapped_levels(original: Fn) -> Fn:
    """Answer at the level that was not asked for."""

    def mistaken(old: Any, sampling: Any, *, level: str, **rest: Any) -> Any:
        return original(old, sampling, level="token" if level == "seq_sum" else "seq_sum", **rest)

    return mistaken


def reversed_mismatch(original: Fn) -> Fn:
    """Estimate the divergence in the other direction."""
    return lambda high, low: original(-high, -low)


def nearest_rank(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Take an element for a quantile."""
    return lambda values: float(np.sort(values)[min(int(0.99 * values.size), values.size - 1)])


def population_quantile(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole formula
    """Interpolate around 0.99·n."""
    return lambda values: float(np.quantile(values, 0.99, method="interpolated_inverted_cdf"))


def clamped_ess(original: Fn) -> Fn:
    """Measure the effective sample size of clamped ratios."""
    return lambda high, low: original(np.clip(high, -0.2, 0.2), low)


def second_moment(original: Fn) -> Fn:
    """Report the mean of r² for χ²."""
    return lambda high, low: original(high, low) + 1.0


def outside_for_clipped(original: Fn) -> Fn:
    """Count every ratio outside the range as clipped."""

    def mistaken(ratio: Any, lower: float, upper: float, gains: Any) -> Any:
        found = original(ratio, lower, upper, gains)
        if gains is None:
            return found
        return {
            **found,
            **{name.replace("outside", "clipped"): found[name] for name in ("outside_low", "outside_high")},
        }

    return mistaken


def clipped_signs_swapped(original: Fn) -> Fn:
    """Count the sides that a clip leaves alone."""
    return lambda ratio, lower, upper, gains: original(ratio, lower, upper, None if gains is None else -gains)


def padding_counts(original: Fn) -> Fn:
    """Let padding in as ratios of 1."""

    def mistaken(policy: Any, behaviour: Any, *, mask: Any = None, **rest: Any) -> Any:
        if mask is None:
            return original(policy, behaviour, mask=None, **rest)
        filled = [np.where(mask, x, x.dtype.type(-1.0)) for x in (policy, behaviour)]
        return original(*filled, mask=np.ones_like(mask), **rest)

    return mistaken
