"""Mutations of ratios, off-policy weights and their statistics; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.edited import edited
from gates.families.patching import Fn, mutation
from gates.families.ratio import statistics
from gates.families.ratio.program import RATIO, WEIGHTS

swapped_pair = edited(RATIO, "the ratio inverted: exp(old − policy)")
sum_for_mean = edited(RATIO, "the ratio of the row, exp(Σ D) (asked: the ratio of the row, exp(mean D))")
exclusive_bounds = edited(WEIGHTS, "ends of the bounds left out")
lower_bound_ignored = edited(WEIGHTS, "no lower bound")
lower_bound_invented = edited(WEIGHTS, "a lower bound of 1/c_max")
clamp_for_mask = edited(WEIGHTS, "truncated at the bounds (TIS) (asked: 0 outside the bounds (MIS))")
swapped_levels = edited(
    WEIGHTS,
    "the ratio of each token (asked: the ratio of the row, exp(Σ D))",
    "the ratio of the row, exp(Σ D) (asked: the ratio of each token)",
)
reversed_mismatch = edited(statistics.PROGRAM, "k3 of −D: e^−D + D − 1, which estimates the other KL")
second_moment = edited(statistics.PROGRAM, "mean r² for χ², not less 1")


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
    """Drop the compensation of the rounding error."""
    high, low = original(left, right)
    return high, np.zeros_like(low)


@mutation
def unrecorded_is_impossible(_original: Fn, old: Any, sampling: Any) -> Any:
    """Count unrecorded log-probs as probability 0."""
    return np.where(np.isnan(sampling), -1e4 + old * 0.0, sampling)


@mutation
def unrecorded_is_certain(_original: Fn, old: Any, sampling: Any) -> Any:
    """Count unrecorded log-probs as probability 1."""
    return np.where(np.isnan(sampling), old * 0.0, sampling)


@mutation
def nearest_rank(_original: Fn, values: Any) -> Any:
    """Return the nearest element as the quantile."""
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
    """Count ratios on the sides that are not clipped."""
    return original(ratio, lower, upper, None if advantages is None else -advantages)


@mutation
def padding_counts(original: Fn, policy: Any, behaviour: Any, *, mask: Any = None, **rest: Any) -> Any:
    """Include padding as ratios of 1."""
    if mask is None:
        return original(policy, behaviour, mask=None, **rest)
    filled = [np.where(mask, x, x.dtype.type(-1.0)) for x in (policy, behaviour)]
    return original(*filled, mask=np.ones_like(mask), **rest)
