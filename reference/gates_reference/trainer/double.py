"""Double-float arithmetic in float32: sums, differences, means and an exponential that keep their rounding errors.

MLX's own operations are too inaccurate to define a loss by. Its float32 sums on CPU accumulate one by one (2e-4 nats off in a
logsumexp at V = 152k), and its exp is off by about |x| units in the last place. A ratio is the exponential of a sum of
differences: an error of 1e-6 in the sum is an error of 1e-6 of the ratio.

Everything here is differentiable and runs on every device. The low part of a number is a constant to the gradient; the gradient
flows through the high part as through plain arithmetic.
"""

from typing import Final, NamedTuple, cast

import mlx.core as mx

SPLIT: Final = 4097.0
"""2**12 + 1, which halves the 24 bits of a float32 (Dekker 1971)."""

BLOCK: Final = 32
"""Summands of one block: at most BLOCK - 1 roundings a level, and few levels."""

LOG2_E: Final = 1.4426950408889634
LN2_HIGH: Final = 0.693359375
"""The first bits of ln 2, few enough that a product with a small whole number is exact (Cody and Waite 1980)."""
LN2_LOW: Final = -2.12194440e-4
EXP_TERMS: Final = 8
"""Terms of exp(r), |r| <= ln(2)/2 (and a rounding error): the next is 0.35**9 / 9! = 2e-10 of the sum."""
EXPM1_LIMIT: Final = 2.0
"""Up to this |x| expm1 and k3 are series; beyond, subtracting from exp(x) loses less than two bits."""
SERIES_TERMS: Final = 20
"""The last term at |x| = 2 is 2**20 / 20! = 4e-13, far below a rounding of the sum."""


class Double(NamedTuple):
    """A number as high + low; |low| is at most a rounding of high."""

    high: mx.array
    low: mx.array


def tree_sum(x: mx.array) -> mx.array:
    """Sum over the last axis, in blocks of `BLOCK` and then over the blocks."""
    while x.shape[-1] > BLOCK:
        missing = -x.shape[-1] % BLOCK
        if missing:
            x = mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
        x = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK).sum(axis=-1)
    return x.sum(axis=-1)


def _finite(error: mx.array) -> mx.array:
    return mx.stop_gradient(mx.where(mx.isfinite(error), error, 0.0))


def difference(left: mx.array, right: mx.array) -> Double:
    """Subtract: the rounded difference and its rounding error (Knuth's two-difference)."""
    rounded = left - right
    virtual = rounded - left
    return Double(rounded, _finite((left - (rounded - virtual)) - (right + virtual)))


def _power_of_two(exponent: mx.array) -> mx.array:
    return ((exponent + 127) << 23).view(mx.float32)


def _exp(x: mx.array, error: mx.array) -> mx.array:
    x = mx.clip(x, -110.0, 90.0)  # 0 and +inf in float32 lie inside
    n = mx.round(x * LOG2_E)
    r = ((x - n * LN2_HIGH) - n * LN2_LOW) + error
    tail = mx.ones_like(r)
    for k in range(EXP_TERMS, 1, -1):
        tail = 1.0 + tail * r * (1.0 / k)
    whole = mx.where(mx.isnan(n), 0.0, n).astype(mx.int32)
    half = whole >> 1
    return (1.0 + tail * r) * _power_of_two(half) * _power_of_two(whole - half)


def _series(x: mx.array, first: int) -> mx.array:
    """Sum x**k / k! from k = first on, divided by x**first."""
    total = mx.zeros_like(x)
    factorial = 1.0
    for k in range(2, first + 1):
        factorial *= k
    for k in range(SERIES_TERMS, first, -1):
        total = (1.0 + total) * x * (1.0 / k)
    return (1.0 + total) * (1.0 / factorial)


def exp(x: mx.array, error: mx.array) -> mx.array:
    """Exponentiate x + error within 2 ulp, +inf where it overflows; `error`, the rounding error of x, is a constant."""
    return cast("mx.array", _exp_rule(x, error))


def k3(d: mx.array, error: mx.array) -> mx.array:
    """Return exp(x) - 1 - x at x = d + error; it is never negative, and its gradient in d is expm1(x)."""
    return cast("mx.array", _k3_rule(d, error))


@mx.custom_function
def _exp_rule(x: mx.array, error: mx.array) -> mx.array:
    return _exp(x, error)


@_exp_rule.vjp
def _exp_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, output: mx.array) -> tuple[mx.array, mx.array]:
    return cotangent * output, mx.zeros_like(primals[1])


def _expm1(x: mx.array, error: mx.array) -> mx.array:
    near = mx.abs(x) <= EXPM1_LIMIT
    small = mx.where(near, x, 0.0)
    return mx.where(near, small * _series(small, 1) + mx.exp(small) * error, _exp(x, error) - 1.0)


@mx.custom_function
def _k3_rule(d: mx.array, error: mx.array) -> mx.array:
    near = mx.abs(d) <= EXPM1_LIMIT
    small = mx.where(near, d, 0.0)
    series = small * small * _series(small, 2) + _expm1(small, mx.zeros_like(error)) * error
    return mx.where(near, series, (_exp(d, error) - 1.0) - d)


@_k3_rule.vjp
def _k3_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
    return cotangent * _expm1(*primals), mx.zeros_like(primals[1])


def _two_sum(a: mx.array, b: mx.array) -> tuple[mx.array, mx.array]:
    """Return the rounded sum and its error (Knuth 1969, vol. 2, section 4.2.2, theorem B)."""
    rounded = a + b
    virtual = rounded - a
    return rounded, _finite((a - (rounded - virtual)) + (b - virtual))


def _product_error(a: mx.array, b: mx.array, product: mx.array) -> mx.array:
    """Return a * b - product exactly (Dekker 1971)."""
    a_high, b_high = ((SPLIT * x) - ((SPLIT * x) - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def row_sum(terms: Double) -> Double:
    """Sum over the last axis, (B, T) -> (B, 1), by adding the two halves of a row until one column is left."""
    high, low = terms
    while high.shape[-1] > 1:
        half = (high.shape[-1] + 1) // 2
        rest = [(0, 0)] * (high.ndim - 1) + [(0, 2 * half - high.shape[-1])]
        high, low = mx.pad(high, rest), mx.pad(low, rest)
        high, error = _two_sum(high[..., :half], high[..., half:])
        low = low[..., :half] + low[..., half:] + error
    return Double(high, mx.stop_gradient(low))


def row_mean(terms: Double, counts: mx.array) -> Double:
    """Divide the sum of each row by its count, (B, T) and (B, 1) -> (B, 1); masked terms are 0, counts at least 1."""
    high, low = row_sum(terms)
    mean = high / counts
    product = mean * counts
    left = (high - product) - _product_error(mean, counts, product) + low
    return Double(mean, _finite(left / counts))


def total(terms: mx.array) -> mx.array:
    """Sum all elements to a scalar, with one rounding at the end."""
    flat = terms.reshape(1, -1)
    high, low = row_sum(Double(flat, mx.zeros_like(flat)))
    return (high + low).reshape(())
