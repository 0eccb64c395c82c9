"""Shared terms of the NumPy baseline: rows of tokens, differences with their rounding error, k3 and sums."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.polynomial.polynomial import polyval

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

TAYLOR = np.array([1.0 / math.factorial(k) for k in range(2, 29)])  # 2**28 / 28! is 9e-22: below half an ulp at |d| = 2
SERIES_RADIUS = 2.0  # nats; beyond it exp(d) - 1 - d has no cancellation


class Slots(NamedTuple):
    """The token slots of (B, T), and whether arrays are flat (N,), row after row."""

    valid: Array
    flat: bool

    def wide(self, name: str, value: Array) -> Array:
        """Return data as (B, T) float64."""
        if not self.flat:
            return arguments.wide(name, value, self.valid.shape)
        grid = np.zeros(self.valid.shape)
        grid[self.valid] = arguments.wide(name, value, (int(self.valid.sum()),))
        return grid

    def narrow(self, result: Array, like: Array) -> Array:
        """Return a (B, T) result in the layout and the dtype of the data."""
        return arguments.narrow(result[self.valid] if self.flat else result, like)


def slots(shape: tuple[int, ...], mask: Array | None, lengths: Array | None) -> Slots:
    """Return the token slots: all, those of a mask, prefixes of given lengths, or the rows of a flat array."""
    if mask is not None and lengths is not None:
        raise ValueError("`mask` and `lengths` are both given, must be one of them")
    if len(shape) not in {1, 2} or (len(shape) == 1 and lengths is None):
        raise ValueError(f"`policy` has shape {shape}, must be (B, T), or (N,) with lengths")
    if lengths is None:
        return Slots(np.ones(shape, bool) if mask is None else _boolean(mask, shape), flat=False)
    counts = arguments.whole("lengths", lengths, 0, 2**31)
    if len(shape) == 2 and (counts.shape != shape[:1] or counts.max(initial=0) > shape[1]):
        raise ValueError(f"`lengths` is {counts.tolist()}, must be {shape[0]} numbers of at most {shape[1]}")
    if len(shape) == 1 and (counts.ndim != 1 or counts.sum() != shape[0]):
        raise ValueError(f"`lengths` sum to {counts.sum()}, must sum to the {shape[0]} tokens of `policy`")
    width = shape[1] if len(shape) == 2 else max(1, int(counts.max(initial=1)))
    return Slots(np.arange(width) < counts[:, None], flat=len(shape) == 1)


def _boolean(mask: Array, shape: tuple[int, ...]) -> Array:
    array = np.asarray(mask)
    if array.shape != shape:
        raise ValueError(f"`mask` has shape {array.shape}, must be {shape}")
    if not np.all((array == 0) | (array == 1)):
        raise ValueError("`mask` must hold only 0 and 1")
    return array.astype(bool)


def select(values: Array, mask: Array) -> Array:
    """Return the values where the mask is set and 0 elsewhere, even for NaN."""
    return np.where(mask, values, 0.0)


def difference(left: Array, right: Array) -> tuple[Array, Array]:
    """Return left - right, and its rounding error."""
    with np.errstate(invalid="ignore", over="ignore"):
        high = left - right
        back = high - left
        low = (left - (high - back)) - (right + back)
    return high, np.where(np.isfinite(low), low, 0.0)


def exponential(high: Array, low: Array) -> Array:
    """Return exp(high + low) for |low| within an ulp of high; +inf on overflow."""
    with np.errstate(over="ignore"):
        value = np.exp(high)
    return np.asarray(value + np.where(np.isfinite(value), value, 0.0) * low)


def mean_of_rows(high: Array, low: Array, tokens: Array | int) -> tuple[Array, Array]:
    """Return Σ(high + low) / tokens of each row, (B, 1), and its rounding error; tokens = 1 gives the sum."""
    count = np.broadcast_to(np.maximum(tokens, 1), (len(high), 1))
    means, lost = np.zeros((2, len(high), 1))
    for row, terms in enumerate(np.concatenate([high, low], axis=1)):
        if not np.all(np.isfinite(terms)):
            means[row] = np.sum(terms) / count[row]
            continue
        exact = sum(map(Fraction, terms.tolist()), Fraction(0)) / int(count[row, 0])
        means[row] = float(exact)
        lost[row] = float(exact - Fraction(float(exact)))
    return means, lost


def k3(d: Array) -> Array:
    """Return exp(d) - d - 1 without cancellation; +inf where exp overflows."""
    near = np.abs(d) <= SERIES_RADIUS
    small = np.where(near, d, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.where(np.isposinf(d), np.inf, np.exp(d) - 1.0 - d)
    return np.where(near, small * small * polyval(small, TAYLOR), far)


def total(values: Array) -> float:
    """Return the sum of all values, rounded once if all are finite."""
    flat = values.reshape(-1)
    if not np.all(np.isfinite(flat)):
        with np.errstate(invalid="ignore"):
            return float(np.sum(flat))
    return math.fsum(flat)
