"""The functions of a forward definition, on float64 arrays or on numbers that carry a bound.

A definition is written once. On arrays it is fast and rules candidates out; on `Number` it gives values, gradients and
each candidate's own limits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.arithmetic import bounded
from gates.arithmetic.number import Number, Test

Value = Any  # Number | float64 array


def exp(x: Value) -> Value:
    """Return e to the power x."""
    return bounded.exp(x) if isinstance(x, Number) else np.exp(x)


def expm1(x: Value) -> Value:
    """Return e to the power x, minus 1, without cancellation."""
    return bounded.expm1(x) if isinstance(x, Number) else np.expm1(x)


def log(x: Value) -> Value:
    """Return the natural logarithm."""
    return bounded.log(x) if isinstance(x, Number) else np.log(x)


def sqrt(x: Value) -> Value:
    """Return the square root."""
    return bounded.sqrt(x) if isinstance(x, Number) else np.sqrt(x)


def absolute(x: Value) -> Value:
    """Return |x|."""
    return bounded.absolute(x) if isinstance(x, Number) else np.abs(x)


def sigmoid(x: Value) -> Value:
    """Return 1 / (1 + exp(−x)); on `Number` without |x|, so that it is differentiable at 0."""
    if isinstance(x, Number):
        return 1.0 / (1.0 + bounded.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0.0, 1.0, small) / (1.0 + small)


def logsigmoid(x: Value) -> Value:
    """Return log sigmoid(x)."""
    return bounded.logsigmoid(x) if isinstance(x, Number) else -np.logaddexp(0.0, -x)


def minimum(a: Value, b: Value) -> Value:
    """Return the elementwise minimum."""
    return bounded.minimum(a, b) if _bounded(a, b) else np.minimum(a, b)


def maximum(a: Value, b: Value) -> Value:
    """Return the elementwise maximum."""
    return bounded.maximum(a, b) if _bounded(a, b) else np.maximum(a, b)


def clip(x: Value, low: Any, high: Any) -> Value:
    """Clip to [low, high]; None leaves a side open."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def where(test: Any, a: Value, b: Value) -> Value:
    """Select `a` where the test is true, else `b`."""
    if isinstance(test, Test) or _bounded(a, b):
        return bounded.where(test, a, b)
    return np.where(test, a, b)


def detached(x: Value) -> Value:
    """Return the same numbers as constants: no gradient passes."""
    return x.detached() if isinstance(x, Number) else x


def plain(x: Value) -> Any:
    """Return the values as a float64 array, without bounds."""
    return x.value if isinstance(x, Number) else np.asarray(x, np.float64)


def _bounded(*values: Value) -> bool:
    return any(isinstance(x, Number) for x in values)
