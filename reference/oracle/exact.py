"""Differences and sums of log-probs with what their rounding lost: half an ulp of D = 30 is 30 half-ulp of exp(D)."""

import math

import numpy as np

from reference.oracle.inputs import Floats


def two_difference(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """The rounded difference and its error add up to left - right exactly, as long as nothing overflows.

    Args:
        left: any shape, float64.
        right: the same shape.

    Returns:
        The difference in float64, and left - right less that difference; of values that are not finite the error
        may be NaN.

    Source: Knuth (1969), The Art of Computer Programming, vol. 2, section 4.2.2, theorem B.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = left - right
        virtual = rounded - left
        return rounded, (left - (rounded - virtual)) - (right + virtual)


def two_sum(terms: Floats) -> tuple[float, float]:
    """The correctly rounded sum of the terms, and what that rounding lost; 0.0 where the sum is not finite.

    Args:
        terms: (N,) float64.

    Returns:
        The sum and its error.

    Source: Shewchuk (1997), "Adaptive precision floating-point arithmetic", as Python's `math.fsum`.
    """
    if not np.all(np.isfinite(terms)):
        return float(np.sum(terms)), 0.0
    total = math.fsum(terms)
    return total, math.fsum([*terms.tolist(), -total])


def finite_or_zero(correction: Floats) -> Floats:
    """A first-order correction, or 0 where the value is not finite and needs none."""
    return np.where(np.isfinite(correction), correction, 0.0)
