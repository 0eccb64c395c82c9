"""The functions of a forward definition, on float64 arrays or on numbers that carry a bound.

A definition is written once. On arrays it is quick, and serves to leave candidates out; on `Number` it gives values,
gradients and each candidate's own limits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.arithmetic import bounded
from gates.arithmetic.number import Number, Test

Value = Any  # Number | float64 array


def exp(x: Value) -> Value:
    """E to the x."""
    return bounded.exp(x) if isinstance(x, Number) else np.exp(x)


def expm1(x: Value) -> Value:
    """E to the x, minus 1, without cancellation."""
    return bounded.expm1(x) if isinstance(x, Number) else np.expm1(x)


def log(x: Value) -> Value:
    """The natural logarithm."""
    return bounded.log(x) if isinstance(x, Number) else np.log(x)


def sqrt(x: Value) -> Value:
    """The square root."""
    return bounded.sqrt(x) if isinstance(x, Number) else np.sqrt(x)


def absolute(x: Value) -> Value:
    """The magnitude."""
    return bounded.absolute(x) if isinstance(x, Number) else np.abs(x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(−x)); the form without |x| has its slope at 0 too."""
    if isinstance(x, Number):
        return 1.0 / (1.0 + bounded.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0.0, 1.0, small) / (1.0 + small)


def logsigmoid(x: Value) -> Value:
    """The logarithm of `sigmoid`."""
    return bounded.logsigmoid(x) if isinstance(x, Number) else -np.logaddexp(0.0, -x)


def minimum(a: Value, b: Value) -> Value:
    """The smaller one, element by element."""
    return bounded.minimum(a, b) if _any(a, b) else np.minimum(a, b)


def maximum(a: Value, b: Value) -> Value:
    """The larger one, element by element."""
    return bounded.maximum(a, b) if _any(a, b) else np.maximum(a, b)


def clip(x: Value, low: Any, high: Any) -> Value:
    """The value, no less than `low` and no more than `high`; None is no bound."""
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def where(test: Any, a: Value, b: Value) -> Value:
    """One of two numbers, as the test says."""
    if isinstance(test, Test) or _any(a, b):
        return bounded.where(test, a, b)
    return np.where(test, a, b)


def detached(x: Value) -> Value:
    """The same numbers as constants of the gradient."""
    return x.detached() if isinstance(x, Number) else x


def plain(x: Value) -> Any:
    """The values alone, as a float64 array."""
    return x.value if isinstance(x, Number) else np.asarray(x, np.float64)


def _any(*values: Value) -> bool:
    return any(isinstance(x, Number) for x in values)
