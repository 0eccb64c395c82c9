"""Differences, sums and means of float64 numbers, together with what their rounding lost.

exp(D) of a rounded D is not exact enough: half an ulp of D = 30 is 30 half-ulps of exp(D). So a difference is kept as
its rounded value and the rest, which `math.fsum` gives: it returns the correctly rounded sum of its arguments.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gates_reference.oracle.inputs import Bools, Floats, Ints


class Exact(NamedTuple):
    """The real numbers value + rest.

    Attributes:
        value: any shape, float64, each the real number correctly rounded.
        rest: of the same shape, what the rounding lost: at most half an ulp of the value, 0 where that is not finite.
    """

    value: Floats
    rest: Floats

    def where(self, chosen: Bools) -> "Exact":
        """The chosen numbers, (N,)."""
        return Exact(self.value[chosen], self.rest[chosen])

    def only(self, chosen: Bools, *, otherwise: Floats | float = 0.0) -> "Exact":
        """The numbers where `chosen`, and elsewhere others that are exact."""
        return Exact(np.where(chosen, self.value, otherwise), np.where(chosen, self.rest, 0.0))


def difference(left: Floats, right: Floats) -> Exact:
    """The difference of each pair of elements, with what its rounding lost."""
    with np.errstate(invalid="ignore", over="ignore"):
        value = left - right
    rest, rounded = np.zeros(value.shape), np.isfinite(value) & (value != 0.0)
    numbers = zip(left[rounded].tolist(), (-right[rounded]).tolist(), (-value[rounded]).tolist(), strict=True)
    rest[rounded] = [math.fsum(three) for three in numbers]
    return Exact(value, rest)


def exp(x: Exact) -> Floats:
    """The exponential e**value e**rest, where e**rest is 1 + rest but for rest**2 / 2, far below u."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x.value) * (1.0 + x.rest))


def expm1(x: Exact) -> Floats:
    """The exponential less 1, (exp(value) - 1) + exp(value) rest but for terms in rest**2."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.expm1(x.value) + first_order(np.exp(x.value) * x.rest))


def square(x: Exact) -> Floats:
    """The square, value**2 + 2 value rest but for rest**2."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x.value**2 + first_order(2.0 * x.value * x.rest))


def row_sums(terms: Exact) -> Exact:
    """The sum of each row of (B, T) real numbers."""
    rows = zip(terms.value.tolist(), terms.rest.tolist(), strict=True)
    sums = np.array([_sum([*values, *rests]) for values, rests in rows], np.float64).reshape(-1, 2)
    return Exact(sums[:, 0], sums[:, 1])


def row_means(terms: Exact, sizes: Ints) -> Exact:
    """The sum of each row of (B, T) real numbers over its size; an empty row has the mean 0."""
    sums, counts = row_sums(terms), np.maximum(sizes, 1)
    means = sums.value / counts
    rests = np.zeros(means.shape)
    for row in np.flatnonzero(np.isfinite(means)):
        exact = (Fraction(sums.value[row]) + Fraction(sums.rest[row])) / int(counts[row])
        rests[row] = float(exact - Fraction(means[row]))
    return Exact(means, rests)


def total(terms: Floats) -> float:
    """The correctly rounded sum of all terms."""
    return _sum(terms.reshape(-1).tolist())[0]


def _sum(numbers: Sequence[float]) -> tuple[float, float]:
    """The rounded sum and its rest; where an infinity or NaN is involved what addition gives, without a rest."""
    try:
        rounded = math.fsum(numbers)
    except (OverflowError, ValueError):  # a sum beyond the largest float64, or inf - inf
        return sum(numbers), 0.0
    return rounded, math.fsum([*numbers, -rounded]) if math.isfinite(rounded) else 0.0


def first_order(correction: Floats) -> Floats:
    """The first-order correction of a value, or 0 where that is infinite and needs none."""
    return np.where(np.isfinite(correction), correction, 0.0)
