"""Numbers with bounds: what a program in the dtype computes never lies further from the exact result than they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.arithmetic import bounded
from gates.arithmetic.bounded import where
from gates.arithmetic.number import Floats, Number, gradient, number, widest

DTYPES = ("float32", "float64")
Pair = tuple[Callable[..., Any], Callable[..., Any]]  # a program of Numbers, and the same of NumPy arrays
SEEDS = st.integers(0, 2**32 - 1)


def exact(program: Callable[..., Any], *data: Any) -> Any:
    """Evaluate a NumPy program in long double: 11 bits more than float64 has, so its own error is nothing here."""
    return program(*(np.asarray(x, np.longdouble) for x in data))


def logsigmoid(x: Any) -> Any:
    """As every framework writes it."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


PROGRAMS: dict[str, Pair] = {
    "sum and product": (lambda a, b: a * b + a - b * b, lambda a, b: a * b + a - b * b),
    "quotient": (lambda a, b: (a - b) / (b * b + 1.0), lambda a, b: (a - b) / (b * b + 1)),
    "k3": (lambda a, b: bounded.exp(a - b) - (a - b) - 1.0, lambda a, b: np.exp(a - b) - (a - b) - 1),
    "k3 by expm1": (lambda a, b: bounded.expm1(a - b) - (a - b), lambda a, b: np.expm1(a - b) - (a - b)),
    "log": (lambda a, b: bounded.log(a * a + 0.5) * b, lambda a, b: np.log(a * a + 0.5) * b),
    "log1p": (lambda a, b: bounded.log1p(a * a) - b, lambda a, b: np.log1p(a * a) - b),
    "logsigmoid": (lambda a, b: bounded.logsigmoid(3.0 * (a - b)), lambda a, b: logsigmoid(3 * (a - b))),
    "sigmoid": (lambda a, b: bounded.sigmoid(a) * b, lambda a, b: b / (1 + np.exp(-a))),
    "deviation": (
        lambda a, b: bounded.sqrt(((a - a.mean()) * (a - a.mean())).sum() / 15.0) + b,
        lambda a, b: np.sqrt(((a - a.mean()) ** 2).sum() / 15) + b,
    ),
    "clipped": (
        lambda a, b: bounded.minimum(a * b, bounded.clip(a, 0.75, 1.25) * b),
        lambda a, b: np.minimum(a * b, np.clip(a, 0.75, 1.25) * b),
    ),
    "magnitude": (lambda a, b: bounded.absolute(a - b) * a, lambda a, b: np.abs(a - b) * a),
    "log-softmax": (
        lambda a, b: a - bounded.log(bounded.exp(a).sum()) + b,
        lambda a, b: a - np.log(np.exp(a).sum()) + b,
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_no_program_is_beyond_its_bound(name: str, dtype: str, seed: int) -> None:
    """Evaluated plainly in the dtype, against long double."""
    rng = np.random.default_rng(seed)
    bounded, plain = PROGRAMS[name]
    data = [rng.normal(0.0, 2.0, 16).astype(dtype) for _ in range(2)]
    found = bounded(*map(number, data))
    error = np.abs(plain(*data).astype(np.longdouble) - exact(plain, *data))
    assert (error <= found.limit()).all(), (error / found.limit()).max()
    assert np.allclose(found.value, exact(plain, *data).astype(float), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=SEEDS, rows=st.integers(1, 9), width=st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_sums_in_every_usual_order(dtype: str, seed: int, rows: int, width: int) -> None:
    """Forward, reversed, pairwise, by rows and by columns first, with zeros between."""
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(rows, width)) * (rng.random((rows, width)) < 0.8)).astype(dtype)

    def forward(x: Any) -> Any:
        total = x.dtype.type(0)
        for term in x.reshape(-1):
            total = total + term
        return total

    wanted = np.asarray(values, np.longdouble).sum()
    limit = float(number(values).sum().limit())
    orders = (values.sum(), forward(values), forward(values[::-1, ::-1]), values.sum(0).sum(), values.sum(1).sum())
    assert all(abs(found - wanted) <= limit for found in orders)


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_sums_of_terms_that_are_lost_beside_others(dtype: str, seed: int) -> None:
    """A term below half a unit of the sum is lost whole, and no more than it."""
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=300) * 10.0 ** rng.uniform(-20, 0, 300)).astype(dtype)
    wanted = np.asarray(values, np.longdouble).sum()
    limit = float(number(values).sum().limit())
    for order in (values, values[::-1], np.sort(values), values[np.argsort(-np.abs(values))]):
        assert abs(np.cumsum(order)[-1] - wanted) <= limit
    assert limit < 300 * np.finfo(dtype).eps * np.abs(values).sum()


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_the_gradient_of_a_clipped_loss(dtype: str, seed: int) -> None:
    """As autograd gives it, against the analytic one in long double."""
    rng = np.random.default_rng(seed)
    policy, old = (-rng.gamma(1.5, 0.8, (4, 6)).astype(dtype) for _ in range(2))
    advantages = rng.normal(size=(4, 1)).astype(dtype)
    logps = number(policy)
    ratio = bounded.exp(logps - number(old))
    loss = -bounded.minimum(ratio * advantages, bounded.clip(ratio, 0.8, 1.2) * advantages).sum(axis=1).mean() / 6.0
    (found,) = gradient(loss, logps)

    def slope(p: Any, o: Any, a: Any) -> Any:
        r = np.exp(p - o)
        bounds = np.asarray([0.8, 1.2]).astype(dtype).astype(r.dtype)
        return np.where(r * a <= np.clip(r, *bounds) * a, -r * a / 24, 0)

    error = np.abs(slope(policy, old, advantages) - exact(slope, policy, old, advantages))
    assert (error <= found.limit()).all()
    assert np.median(found.limit() / np.maximum(np.abs(found.value), 1e-30)) < 100 * np.finfo(dtype).eps


class TestExactness:
    """What does not round has no bound, so that zeros must be zeros."""

    def test_equals_cancel_exactly(self) -> None:
        """And products with exact zeros stay zero."""
        x = number(np.float32([1.1, -3.3]))
        assert (x - x).limit().max() == 0.0
        assert ((x * 0.1) * 0.0).limit().max() == 0.0

    def test_a_power_of_two_scales_without_rounding(self) -> None:
        """As every binary type does."""
        assert (number(np.float32([1.1])) * 0.5).error.max() == 0.0
        assert (number(np.float32([1.1])) * 0.3).error.max() > 0.0

    def test_data_of_half_types_is_computed_in_float32(self) -> None:
        """Whose unit is that of the bound."""
        assert number(np.float16([1.0])).dtype == "float32"


class TestVoid:
    """What may overflow carries no claim."""

    def test_it_spreads(self) -> None:
        """Through everything that is computed from it."""
        large = bounded.exp(number(np.float32([100.0, 1.0])))
        found = (large * 0.0 + 1.0).limit()
        assert np.isinf(found[0])
        assert np.isfinite(found[1])

    def test_a_minimum_that_discards_it_is_certain(self) -> None:
        """The clip of a ratio that overflowed."""
        ratio = bounded.exp(number(np.float32([100.0])))
        assert np.isfinite(bounded.minimum(ratio, 1.2).limit()).all()
        assert np.isinf(bounded.maximum(ratio, 1.2).limit()).all()

    def test_a_logarithm_whose_bound_reaches_zero(self) -> None:
        """Has no bound."""
        x = number(np.float32([1.0]))
        assert np.isinf(bounded.log((x + 1e-8) - x).limit()).all()


class TestBranches:
    """A condition within its own bound admits both branches."""

    @staticmethod
    def selected(x: Number) -> Floats:
        """1 above 0.3 of x, else 0."""
        ones = number(np.ones(1, np.float32))
        return where(x * 0.3 > 0.3, ones, ones * 0.0).limit()

    def test_at_the_threshold_both_are_admitted(self) -> None:
        """Away from it only one is."""
        assert self.selected(number(np.float32([1.0])) + 1e-9)[0] >= 1.0
        assert self.selected(number(np.float32([1.1])))[0] < 1e-6

    def test_the_widest_of_several_forms(self) -> None:
        """Element by element; void only where all are."""
        a, b = number(np.float32([1.0, 2.0])) * 0.3, number(np.float32([100.0, 2.0]))
        found = widest([a, bounded.exp(b)])
        assert np.isfinite(found).all()
        assert found[1] == bounded.exp(b).limit()[1]
