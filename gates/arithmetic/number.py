"""Numbers that carry a bound on their own rounding error, so that a literal program gives its own limit.

`Number` holds an array of values, computed in float64, and for each of them the largest difference that a program in the
dtype may have from the exact result (a running error bound: Wilkinson; Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.3). Every operation adds its own rounding: u for + - * / and sqrt, 4 ulp for exp, log and
their kin, 0 where the result is exact. `gradient` differentiates a program as autograd does, and bounds the result too.

Rules:
- A sum is bounded by u times the sum of its |partial sums|, in the worst of several orders. An exact 0 adds nothing.
- A comparison within its own bound is undecided: `bounded.where` then admits both branches.
- Within `narrow.in_float32` every program computes in float32; what its data lose by that is an error of the input.
- A value that overflows the dtype is void, and so is every result computed from it, except a minimum or maximum that
  certainly discards it. A void element has the limit inf: nothing is claimed about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from gates.arithmetic.narrow import narrowed, rounding, working
from gates.arithmetic.sums import worst_sums

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Like = "Number | npt.ArrayLike"
Rule = Callable[["Number"], "Number"]  # the cotangent of a result → that of one operand

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
TINY = {name: float(np.finfo(name).tiny) for name in UNIT}
LARGEST = {name: float(np.finfo(name).max) for name in UNIT}
LIBRARY = 8.0  # in u: 4 ulp, the accuracy that libraries promise for exp and log
FACTOR = 2.0  # on every bound, because a first-order analysis omits products of roundings
_order = count()


class Number:
    """An array of values with bounds; the module docstring has the rules.

    Attributes:
        value: float64 values.
        error: float64, at least 0: bounds on their absolute error.
        void: bool: the dtype may overflow in the computation of this element.
        dtype: "float32" or "float64", the dtype of the program.
    """

    __array_ufunc__ = None  # so that ndarray + Number calls Number.__radd__
    __slots__ = ("_parents", "_rank", "dtype", "error", "value", "void")

    def __init__(
        self,
        value: npt.ArrayLike,
        dtype: str,
        error: npt.ArrayLike = 0.0,
        void: Any = False,  # noqa: FBT002  as in NumPy
        parents: Sequence[tuple[Number, Rule]] = (),
    ) -> None:
        self.value: Floats = np.asarray(value, np.float64)
        self.dtype = working(dtype)
        errors = np.asarray(error, np.float64)
        same = errors.shape == self.value.shape  # broadcast_to is slow
        self.error: Floats = errors if same else np.broadcast_to(errors, self.value.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            too_large = ~(np.abs(self.value) + errors <= LARGEST[self.dtype])  # true for NaN
        self.void: Bools = np.asarray(too_large if void is False else too_large | void)
        self._parents = tuple(parents)
        self._rank = next(_order)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.value.shape

    def __repr__(self) -> str:
        return f"Number({self.value!r} ± {self.error!r}, {self.dtype})"

    # --- arithmetic

    def _lift(self, other: Any) -> Number:
        if isinstance(other, Number):
            return other
        kept = type(other) in {int, float} and other  # 0.0 and −0.0 are one key
        return _scalar(other, self.dtype, narrowed()) if kept else constant(other, self.dtype)

    def _result(
        self, value: Any, error: Any, parents: Sequence[tuple[Number, Rule]], *, roundings: float = 1.0
    ) -> Number:
        """Return a result: its error is that of the operands plus its own rounding."""
        with np.errstate(all="ignore"):
            own = np.maximum(roundings * UNIT[self.dtype] * np.abs(value), TINY[self.dtype])
            own = np.where(value == 0.0, 0.0, own)
            error = error + own
        void = parents[0][0].void
        for parent, _ in parents[1:]:
            void = void | parent.void
        return Number(value, self.dtype, error, void, parents)

    def __add__(self, other: Any) -> Number:
        b = self._lift(other)
        with np.errstate(all="ignore"):
            value, error = self.value + b.value, self.error + b.error
        return self._result(value, error, [(self, lambda g: g), (b, lambda g: g)])

    def __neg__(self) -> Number:
        return Number(-self.value, self.dtype, self.error, self.void, [(self, lambda g: -g)])

    def __sub__(self, other: Any) -> Number:
        b = self._lift(other)
        with np.errstate(all="ignore"):
            value, error = self.value - b.value, self.error + b.error
        return self._result(value, error, [(self, lambda g: g), (b, lambda g: -g)])

    def __mul__(self, other: Any) -> Number:
        b = self._lift(other)
        with np.errstate(all="ignore"):
            value = self.value * b.value
            error = np.abs(self.value) * b.error + np.abs(b.value) * self.error + self.error * b.error
        exact = _is_power_of_two(b) | _is_power_of_two(self)  # ±1, ½ and 2 do not round
        result = self._result(value, error, [(self, lambda g: g * b), (b, lambda g: g * self)])
        result.error = np.where(exact, error, result.error)
        return result

    def __truediv__(self, other: Any) -> Number:
        b = self._lift(other)
        with np.errstate(all="ignore"):
            value = self.value / b.value
            room = np.abs(b.value) - b.error
            error = (self.error + np.abs(value) * b.error) / room
            bad = ~(room > 0.0)
        result = self._result(
            value, np.where(bad, 0.0, error), [(self, lambda g: g / b), (b, lambda g: -(g * (result / b)))]
        )
        result.error = np.where(_is_power_of_two(b), np.where(bad, 0.0, error), result.error)
        result.void = result.void | bad
        return result

    def __radd__(self, other: Any) -> Number:
        return self._lift(other) + self

    def __rsub__(self, other: Any) -> Number:
        return self._lift(other) - self

    def __rmul__(self, other: Any) -> Number:
        return self._lift(other) * self

    def __rtruediv__(self, other: Any) -> Number:
        return self._lift(other) / self

    # --- comparisons: the truth of the values, and where the bound leaves it undecided

    def __gt__(self, other: Any) -> Test:
        return Test(self - self._lift(other), strict=True)

    def __lt__(self, other: Any) -> Test:
        return Test(self._lift(other) - self, strict=True)

    def __ge__(self, other: Any) -> Test:
        return Test(self - self._lift(other), strict=False)

    def __le__(self, other: Any) -> Test:
        return Test(self._lift(other) - self, strict=False)

    # --- shapes

    def reshape(self, *shape: int) -> Number:
        """Return the same numbers in another shape."""
        before = self.shape
        return Number(
            self.value.reshape(*shape),
            self.dtype,
            self.error.reshape(*shape),
            self.void.reshape(*shape),
            [(self, lambda g: g.reshape(*before))],
        )

    def __getitem__(self, index: Any) -> Number:
        def back(g: Number) -> Number:
            spread = [np.zeros(self.shape) for _ in range(3)]
            for target, part in zip(spread, (g.value, g.error, g.void), strict=True):
                np.add.at(target, index, part)
            return Number(spread[0], self.dtype, spread[1], spread[2] > 0.0)

        return Number(self.value[index], self.dtype, self.error[index], self.void[index], [(self, back)])

    def sum(self, axis: int | None = None, *, keepdims: bool = False) -> Number:
        """Return the sum over an axis, or over all elements; the bound holds for each usual order of addition."""
        value, own = worst_sums(self.value, axis, UNIT[self.dtype])
        with np.errstate(all="ignore"):
            error = self.error.sum(axis=axis) + UNIT[self.dtype] * own
        void = self.void.any(axis=axis)
        if keepdims:
            value, error, void = (_kept(x, axis, self.shape) for x in (value, error, void))

        def back(g: Number) -> Number:
            wide = [
                np.broadcast_to(x if keepdims else _kept(x, axis, self.shape), self.shape)
                for x in (g.value, g.error, g.void)
            ]
            return Number(wide[0], self.dtype, wide[1], wide[2])

        return Number(value, self.dtype, error, void, [(self, back)])

    def mean(self, axis: int | None = None, *, keepdims: bool = False) -> Number:
        """Return the sum divided by the number of elements."""
        length = self.value.size if axis is None else self.shape[axis]
        return self.sum(axis, keepdims=keepdims) / float(length)

    def detached(self) -> Number:
        """Return the same numbers as constants: no gradient passes."""
        return Number(self.value, self.dtype, self.error, self.void)

    def plus_relative(self, roundings: float) -> Number:
        """Return the same numbers with a bound wider by this number of roundings."""
        with np.errstate(all="ignore"):
            error = self.error + roundings * UNIT[self.dtype] * np.abs(self.value)
        return Number(self.value, self.dtype, error, self.void, [(self, lambda g: g)])

    def limit(self) -> Floats:
        """Return the largest allowed distance of each element from the exact result: inf where no claim can be made."""
        with np.errstate(all="ignore"):
            oracle = UNIT["float64"] * np.abs(self.value)  # the definition is itself a rounded float64
            return np.where(self.void | np.isnan(self.value), np.inf, FACTOR * self.error + 4.0 * oracle)


class Test:
    """Whether a difference is positive: `truth` of the values, `open` where the bound leaves it undecided."""

    def __init__(self, difference: Number, *, strict: bool) -> None:
        value = difference.value
        with np.errstate(invalid="ignore"):
            self.truth: Bools = value > 0.0 if strict else value >= 0.0
            self.open: Bools = (np.abs(value) <= difference.error) & (difference.error > 0.0) | difference.void

    def __invert__(self) -> Test:
        inverse = object.__new__(Test)
        inverse.truth, inverse.open = ~self.truth, self.open
        return inverse

    def __and__(self, other: Any) -> Test:
        b = as_test(other)
        both = object.__new__(Test)
        both.truth = self.truth & b.truth
        both.open = (self.open & (b.truth | b.open)) | (b.open & (self.truth | self.open))
        return both

    __rand__ = __and__


def as_test(condition: Any) -> Test:
    """Return a `Test` unchanged, and booleans as a test that is decided everywhere."""
    if isinstance(condition, Test):
        return condition
    decided = object.__new__(Test)
    decided.truth = np.asarray(condition, bool)
    decided.open = np.zeros(decided.truth.shape, bool)
    return decided


@lru_cache(maxsize=1024)
def _scalar(value: float, dtype: str, narrow: bool) -> Number:  # noqa: ARG001, FBT001  a part of the key
    return constant(value, dtype)


def constant(values: npt.ArrayLike, dtype: str) -> Number:
    """Return constants of the dtype: a scalar is rounded once, an array is taken as exact."""
    values = np.asarray(values)
    if narrowed():
        return Number(values, dtype, rounding(values))
    if values.ndim == 0:
        with np.errstate(over="ignore"):
            values = np.asarray(values, np.float64).astype(dtype)
    return Number(values, dtype)


def number(data: npt.ArrayLike, dtype: str | None = None) -> Number:
    """Return data as exact numbers of its own dtype; half-precision data is computed in float32."""
    array = np.asarray(data)
    dtype = dtype or ("float64" if array.dtype == np.float64 else "float32")
    return Number(array, dtype, rounding(array) if narrowed() else 0.0)


def gradient(result: Number, *of: Number) -> list[Number]:
    """Return the gradient of the sum of `result` with respect to each of `of`, as autograd computes it."""
    pending: dict[int, tuple[Number, Number]] = {
        result._rank: (result, Number(np.ones(result.shape), result.dtype))  # noqa: SLF001
    }
    wanted = {x._rank for x in of}  # noqa: SLF001
    cotangents: dict[int, Number] = {}
    while pending:
        rank = max(pending)
        node, cotangent = pending.pop(rank)
        if rank in wanted:
            cotangents[rank] = cotangent
        for parent, rule in node._parents:  # noqa: SLF001
            if not (parent._parents or parent._rank in wanted):  # noqa: SLF001
                continue
            contribution = _narrowed(rule(cotangent), parent.shape)
            earlier = pending.get(parent._rank)  # noqa: SLF001
            pending[parent._rank] = (parent, contribution if earlier is None else earlier[1] + contribution)  # noqa: SLF001
    return [cotangents.get(x._rank, Number(np.zeros(x.shape), x.dtype)) for x in of]  # noqa: SLF001


def widest(forms: Iterable[Number]) -> Floats:
    """Return the elementwise largest limit of several forms of one program; inf only where every form is void."""
    limits = [form.limit() for form in forms]
    largest = np.max([np.where(np.isinf(limit), -1.0, limit) for limit in limits], axis=0)
    return np.where(largest < 0.0, np.inf, largest)


def _narrowed(g: Number, shape: tuple[int, ...]) -> Number:
    """Sum a cotangent over the axes that broadcasting added."""
    if g.shape == shape:
        return g
    while len(g.shape) > len(shape):
        g = g.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and g.shape[axis] != 1:
            g = g.sum(axis=axis, keepdims=True)
    if g.shape != shape:  # a cotangent that was never broadcast, such as that of a scalar
        wide = [np.broadcast_to(x, shape) for x in (g.value, g.error, g.void)]
        return Number(wide[0], g.dtype, wide[1], wide[2])
    return g


def _is_power_of_two(x: Number) -> Bools:
    mantissa, _ = np.frexp(x.value)  # not finite for infinities and NaN
    return np.asarray((np.abs(mantissa) == 0.5) & (x.error == 0.0))


def _kept(x: Any, axis: int | None, shape: tuple[int, ...]) -> Any:
    return np.reshape(x, (1,) * len(shape)) if axis is None else np.expand_dims(x, axis)
