"""Functions of numbers that carry a bound: each adds its own rounding and has the derivative of autograd.

minimum, maximum, clip and absolute are bounded by intervals. `where` admits both branches if its condition is undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gates.arithmetic.number import LIBRARY, Bools, Floats, Number, Rule, Test, as_test, constant


def _unary(x: Number, value: Floats, slope: Floats, curve: Any, rule: Rule, *, roundings: float = LIBRARY) -> Number:
    """Return f(x): `slope` is the largest |f'| within the bound, `curve` an additional error."""
    with np.errstate(all="ignore"):
        error = np.where(x.error == 0.0, 0.0, slope * x.error) + curve
        return x._result(value, error, [(x, rule)], roundings=roundings)  # noqa: SLF001


def exp(x: Number) -> Number:
    """Return e to the power x."""
    with np.errstate(all="ignore"):
        value = np.exp(x.value)
        result = _unary(x, value, np.exp(x.value + x.error), 0.0, lambda g: g * result)
    result.error = np.where((x.value == 0.0) & (x.error == 0.0), 0.0, result.error)  # exp(0) is 1 in every library
    return result


def expm1(x: Number) -> Number:
    """Return e to the power x, minus 1, without cancellation."""
    with np.errstate(all="ignore"):
        return _unary(x, np.expm1(x.value), np.exp(x.value + x.error), 0.0, lambda g: g * exp(x))


def log(x: Number) -> Number:
    """Return the natural logarithm; void where the bound reaches 0."""
    with np.errstate(all="ignore"):
        least = x.value - x.error
        value = np.log(x.value)
        result = _unary(x, value, 1.0 / least, 0.0, lambda g: g / x)
        result.void = result.void | ~(least > 0.0)
    return result


def log1p(x: Number) -> Number:
    """Return log(1 + x) without cancellation."""
    with np.errstate(all="ignore"):
        least = 1.0 + x.value - x.error
        result = _unary(x, np.log1p(x.value), 1.0 / least, 0.0, lambda g: g / (1.0 + x))
        result.void = result.void | ~(least > 0.0)
    return result


def sqrt(x: Number) -> Number:
    """Return the square root."""
    with np.errstate(all="ignore"):
        least = np.maximum(x.value - x.error, 0.0)
        value = np.sqrt(np.maximum(x.value, 0.0))
        error = np.maximum(value - np.sqrt(least), np.sqrt(np.maximum(x.value + x.error, 0.0)) - value)
    result = x._result(value, error, [(x, lambda g: g * 0.5 / result)])  # noqa: SLF001
    return result


def absolute(x: Number) -> Number:
    """Return |x|."""
    sign = np.sign(x.value)
    return Number(np.abs(x.value), x.dtype, x.error, x.void, [(x, lambda g: g * constant(sign, x.dtype))])


def sigmoid(x: Number) -> Number:
    """Return 1 / (1 + exp(−x)) in the form that does not overflow."""
    small = exp(-absolute(x))
    return where(x.value >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small))


def logsigmoid(x: Number) -> Number:
    """Return log sigmoid(x) = min(x, 0) − log1p(exp(−|x|)), as every framework writes it."""
    return minimum(x, 0.0) - log1p(exp(-absolute(x)))


def _pair(a: Any, b: Any) -> tuple[Number, Number]:
    first = a if isinstance(a, Number) else b
    return first._lift(a), first._lift(b)  # noqa: SLF001


def minimum(a: Any, b: Any) -> Number:
    """Return the smaller number; an operand that is certainly larger may overflow."""
    return _extreme(*_pair(a, b), smaller=True)


def maximum(a: Any, b: Any) -> Number:
    """Return the larger number; an operand that is certainly smaller may overflow."""
    return _extreme(*_pair(a, b), smaller=False)


def _extreme(a: Number, b: Number, *, smaller: bool) -> Number:
    pick, sign = (np.minimum, 1.0) if smaller else (np.maximum, -1.0)
    with np.errstate(all="ignore"):
        value = pick(a.value, b.value)
        low, high = pick(a.value - a.error, b.value - b.error), pick(a.value + a.error, b.value + b.error)
        error = np.fmax(value - low, high - value)
        # the discarded operand overflowed on the side where it certainly loses
        lost_a = a.void & ~b.void & (sign * (a.value - b.value) > a.error * (a.error < np.inf) + b.error)
        lost_b = b.void & ~a.void & (sign * (b.value - a.value) > b.error * (b.error < np.inf) + a.error)
        value, error = (
            np.where(lost_a, b.value, np.where(lost_b, a.value, value)),
            np.where(lost_a, b.error, np.where(lost_b, a.error, error)),
        )
        void = (a.void & ~lost_a) | (b.void & ~lost_b)
        from_a = sign * (b.value - a.value) > 0.0
        tied = a.value == b.value
        undecided = ~tied & (np.abs(a.value - b.value) <= a.error + b.error)
    share = np.where(
        tied, 0.5, np.where(from_a, 1.0, 0.0)
    )  # torch halves the gradient of a tie; others pick one operand
    slack = np.where(undecided, 1.0, 0.0)  # not for a tie, as in a clip that does not act

    def rule(part: Floats) -> Rule:
        def back(g: Number) -> Number:
            with np.errstate(all="ignore"):
                moved = np.where(part == 0.0, 0.0, g.value * part)
                error_ = np.where((part == 0.0) & (slack == 0.0), 0.0, g.error + slack * np.abs(g.value))
            return Number(moved, g.dtype, error_, g.void & ((part > 0.0) | (slack > 0.0)))

        return back

    return Number(value, a.dtype, error, void, [(a, rule(share)), (b, rule(1.0 - share))])


def clip(x: Number, low: Any = None, high: Any = None) -> Number:
    """Clip to [low, high]; None leaves a side open."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def where(condition: Test | npt.ArrayLike, a: Any, b: Any) -> Number:
    """Select by a condition; where it is undecided within its own bound, both branches are admitted."""
    test = as_test(condition)
    a, b = _pair(a, b)
    with np.errstate(all="ignore"):
        value = np.where(test.truth, a.value, b.value)
        error = np.where(test.truth, a.error, b.error)
        alternative = np.where(test.truth, b.error, a.error)
        apart = np.where(a.value == b.value, 0.0, np.abs(a.value - b.value))
        error = np.where(test.open, np.maximum(error, alternative) + apart, error)
    void = np.where(test.open, a.void | b.void, np.where(test.truth, a.void, b.void))

    def rule(chosen: Bools) -> Rule:
        def back(g: Number) -> Number:
            with np.errstate(all="ignore"):
                moved, slack = np.where(chosen, g.value, 0.0), np.where(test.open, np.abs(g.value), 0.0)
                error_ = np.where(chosen | test.open, g.error, 0.0) + slack
            return Number(moved, g.dtype, error_, g.void & (chosen | test.open))

        return back

    return Number(value, a.dtype, error, void, [(a, rule(test.truth)), (b, rule(~test.truth))])
