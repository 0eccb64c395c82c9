"""Differences, sums and means keep what their rounding loses; formulas and error models import in one direction."""

import ast
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from gates_reference.oracle.definitions import exact, logistic
from gates_reference.oracle.definitions.exact import Exact

FOLDER = Path(exact.__file__).parent.parent
SPREADS = [1e-9, 1.0, 1e9]


def numbers(spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of different magnitudes, so that their differences and sums are rounded."""
    rng = np.random.default_rng(12)
    return rng.normal(0, 1, (6, 11)) / 3, rng.normal(0, spread, (6, 11)) / 7


def rational(x: Exact) -> list[Fraction]:
    """Value + rest without any rounding."""
    return [Fraction(a) + Fraction(b) for a, b in zip(x.value.flat, x.rest.flat, strict=True)]


class TestExact:
    """Values with their rests, against rational numbers."""

    @pytest.mark.parametrize("spread", SPREADS)
    def test_a_difference_loses_nothing(self, spread: float) -> None:
        """Value + rest is the rational difference, and the value alone is that correctly rounded."""
        left, right = numbers(spread)
        want = [Fraction(a) - Fraction(b) for a, b in zip(left.flat, right.flat, strict=True)]
        got = exact.difference(left, right)
        assert rational(got) == want
        assert got.value.reshape(-1).tolist() == [float(x) for x in want]
        assert np.any(got.rest != 0)

    @pytest.mark.parametrize("spread", SPREADS)
    def test_sums_and_means_of_rows(self, spread: float) -> None:
        """Both are within 2**-100 of the rational ones relative to the row's largest term; an empty row gives 0."""
        left, right = numbers(spread)
        left[3], right[3] = 0.0, 0.0
        sizes = np.array([11, 11, 11, 0, 11, 11])
        terms = exact.difference(left, right)
        for got, divisors in (
            (exact.row_sums(terms), np.ones(6, int)),
            (exact.row_means(terms, sizes), np.maximum(sizes, 1)),
        ):
            for row, found in enumerate(rational(got)):
                pairs = list(zip(left[row], right[row], strict=True))
                want = sum(Fraction(a) - Fraction(b) for a, b in pairs) / int(divisors[row])
                largest: float = np.max(np.abs(left[row] - right[row]))
                assert abs(found - want) <= Fraction(largest) / 2**100

    def test_what_is_not_finite_has_no_rest(self) -> None:
        """Infinities and NaN are what addition gives, and a difference that overflows is infinite."""
        left, right = np.array([[math.inf, math.nan, math.inf, 1e308]]), np.array([[1.0, 1.0, math.inf, -1e308]])
        got = exact.difference(left, right)
        np.testing.assert_array_equal(got.value, [[math.inf, math.nan, math.nan, math.inf]])
        assert not got.rest.any()
        sums = exact.row_sums(
            Exact(np.array([[math.inf, -math.inf], [math.inf, 1.0], [1e308, 1e308]]), np.zeros((3, 2)))
        )
        np.testing.assert_array_equal(sums.value, [math.nan, math.inf, math.inf])
        assert not sums.rest.any()
        assert exact.total(np.array([1e308, 1e308])) == math.inf

    @pytest.mark.parametrize("value", [-700.0, -30.0, -1e-9, 0.0, 1e-3, 2.0, 30.0, 700.0])
    @pytest.mark.parametrize("share", [-0.5, 0.25, 0.5])
    def test_functions_of_value_and_rest(self, value: float, share: float) -> None:
        """The exponential, that less 1 and the square are within 4 half-ulps of 60 digits."""
        rest = share * float(np.spacing(value))
        x = Exact(np.array(value), np.array(rest))
        with mpmath.workdps(60):
            whole = mpmath.mpf(value) + mpmath.mpf(rest)
            for got, want in (
                (exact.exp(x), mpmath.exp(whole)),
                (exact.expm1(x), mpmath.expm1(whole)),
                (exact.square(x), whole**2),
            ):
                assert abs(mpmath.mpf(float(got)) - want) <= 4 * 2.0**-53 * abs(want)

    def test_overflow_is_infinite(self) -> None:
        """An infinite value is no NaN, whatever the sign of the rest."""
        for rest in (-1e-14, 1e-14):
            x = Exact(np.array([710.0]), np.array([rest]))
            assert exact.exp(x)[0] == exact.expm1(x)[0] == math.inf


@pytest.mark.parametrize("x", [-800.0, -40.0, -1.0, -1e-9, 0.0, 0.3, 40.0, 800.0])
def test_logistic_function(x: float) -> None:
    """The logistic function and minus its logarithm are within 4 half-ulps of 500 digits, on both sides."""
    with mpmath.workdps(500):
        sigma = 1 / (1 + mpmath.exp(-mpmath.mpf(x)))
        for got, want in (
            (logistic.sigmoid(np.array(x)), sigma),
            (logistic.minus_log_sigmoid(np.array(x)), -mpmath.log(sigma)),
        ):
            assert abs(mpmath.mpf(float(got)) - want) <= 4 * 2.0**-53 * want + 5e-324


def _imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.startswith("gates_reference.oracle.")}


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("definitions", ("gates_reference.oracle.definitions", "gates_reference.oracle.inputs")),
        (
            "errors",
            ("gates_reference.oracle.errors", "gates_reference.oracle.definitions", "gates_reference.oracle.inputs"),
        ),
    ],
)
def test_a_formula_knows_no_error_model(folder: str, allowed: tuple[str, ...]) -> None:
    """Definitions import each other only; the error model may read definitions; neither imports the public functions."""
    for file in (FOLDER / folder).glob("*.py"):
        assert all(name.startswith(allowed) for name in _imported(file)), (file, _imported(file))
