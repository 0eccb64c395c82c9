"""Sums and means of float32 numbers as pairs: the rounded result, and what its rounding lost.

A ratio is the exponential of a sum of differences: an error of 1e-6 in the sum is an error of 1e-6 of the ratio. In every
function the low part is a constant to the gradient, which flows through the high part as through a plain sum.
"""

from typing import Final, NamedTuple

import mlx.core as mx

SPLIT: Final = 4097.0
"""2**12 + 1, which halves the 24 bits of a float32 (Dekker 1971)."""


class Pair(NamedTuple):
    """A number as high + low, low within a rounding of high."""

    high: mx.array
    low: mx.array


def _finite(error: mx.array) -> mx.array:
    return mx.stop_gradient(mx.where(mx.isfinite(error), error, 0.0))


def _two_sum(a: mx.array, b: mx.array) -> tuple[mx.array, mx.array]:
    """The rounded sum and its error (Knuth 1969, vol. 2, section 4.2.2, theorem B)."""
    rounded = a + b
    virtual = rounded - a
    return rounded, _finite((a - (rounded - virtual)) + (b - virtual))


def _product_error(a: mx.array, b: mx.array, product: mx.array) -> mx.array:
    """The value of a * b - product, exactly (Dekker 1971)."""
    a_high, b_high = ((SPLIT * x) - ((SPLIT * x) - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def row_sum(terms: Pair) -> Pair:
    """The sum over the last axis, kept as one column: (B, T) -> (B, 1); the halves of the row are added until one is left."""
    high, low = terms
    while high.shape[-1] > 1:
        half = (high.shape[-1] + 1) // 2
        rest = [(0, 0)] * (high.ndim - 1) + [(0, 2 * half - high.shape[-1])]
        high, low = mx.pad(high, rest), mx.pad(low, rest)
        high, error = _two_sum(high[..., :half], high[..., half:])
        low = low[..., :half] + low[..., half:] + error
    return Pair(high, mx.stop_gradient(low))


def row_mean(terms: Pair, counts: mx.array) -> Pair:
    """The sum of each row over its count, (B, T) and (B, 1) -> (B, 1); terms are 0 where nothing stands, counts at least 1."""
    high, low = row_sum(terms)
    mean = high / counts
    product = mean * counts
    left = (high - product) - _product_error(mean, counts, product) + low
    return Pair(mean, _finite(left / counts))


def total(terms: mx.array) -> mx.array:
    """The sum of all elements with one rounding at the end, a scalar."""
    flat = terms.reshape(1, -1)
    high, low = row_sum(Pair(flat, mx.zeros_like(flat)))
    return (high + low).reshape(())
