"""Differences and sums of log-probs with what their rounding lost: half an ulp of D = 30 is 30 half-ulp of exp(D)."""

import math
from fractions import Fraction

import numpy as np

from reference.oracle.inputs import Floats, Ints


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


def exponential(difference: Floats, lost: Floats | float = 0.0) -> Floats:
    """The exponential of difference + lost, where lost is within an ulp of difference; +inf on overflow.

    Args:
        difference: any shape, float64.
        lost: what the rounding of `difference` lost.

    Returns:
        float64 of the same shape.

    Source: the first-order Taylor expansion; what it leaves out is lost**2 / 2, far below u.
    """
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(difference) * (1.0 + lost))


def row_sums(difference: Floats, lost: Floats) -> tuple[Floats, Floats]:
    """Per row the correctly rounded sum of the exact terms, and what that rounding lost.

    Args:
        difference: (B, T) float64.
        lost: (B, T), what the rounding of each term lost.

    Returns:
        (B,) and (B,).

    Source: as `two_sum`.
    """
    sums = np.array([two_sum(row) for row in np.concatenate([difference, lost], axis=1)]).reshape(-1, 2)
    return sums[:, 0], sums[:, 1]


def row_means(difference: Floats, lost: Floats, sizes: Ints) -> tuple[Floats, Floats]:
    """Per row the rounded mean of the exact terms, and what its roundings lost.

    Args:
        difference: (B, T) float64, 0.0 where a slot holds no term.
        lost: (B, T), what the rounding of each term lost.
        sizes: (B,), the terms of each row; a row without one has mean 0.

    Returns:
        (B,) and (B,).

    Source: the quotient's remainder in exact rational arithmetic.
    """
    totals, rests = row_sums(difference, lost)
    counts = np.maximum(sizes, 1)
    means = totals / counts
    missing = np.zeros(means.shape)
    for row in np.flatnonzero(np.isfinite(means)):
        left = Fraction(totals[row]) + Fraction(rests[row]) - Fraction(means[row]) * int(counts[row])
        missing[row] = float(left / int(counts[row]))
    return means, missing


def total(terms: Floats) -> float:
    """The correctly rounded sum of the terms; where it overflows or a term is not finite, what IEEE addition gives.

    Args:
        terms: any shape, float64.

    Returns:
        The sum.

    Source: as `two_sum`.
    """
    flat = terms.reshape(-1)
    try:
        return two_sum(flat)[0]
    except OverflowError:
        with np.errstate(over="ignore"):
            return float(np.sum(flat))
