"""`rlkernels.token_kl`: by hand, against mpmath, its layouts and its special values."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rlkernels

INF, NAN = np.inf, np.nan
FLOATS = [np.float32, np.float64]
ESTIMATORS = ["k1", "k2", "k3"]
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}


def exact(policy: Any, reference: Any, estimator: str) -> mpmath.mpf:
    """The estimator's definition in 400 digits: `expm1(d) - d` loses as many as |d| has zeros, 324 at most."""
    with mpmath.workdps(400):
        d = mpmath.mpf(float(reference)) - mpmath.mpf(float(policy))
        return {"k1": -d, "k2": d * d / 2, "k3": mpmath.expm1(d) - d}[estimator]


def assert_accurate(policy: Any, reference: Any, estimator: str) -> None:
    """Every token's relative error is within k * 2u."""
    got = rlkernels.token_kl(policy, reference, estimator=estimator)
    for p, r, have in zip(policy.flat, reference.flat, got.flat, strict=True):
        want = exact(p, r, estimator)
        kind = policy.dtype.type
        if abs(want) > float(np.finfo(kind).max):
            assert abs(have) == INF
        elif abs(want) >= float(np.finfo(kind).tiny) or want == 0:
            assert abs(float(have) - want) <= LIMIT[kind] * abs(want), (p, r, have, float(want))


class TestByHand:
    """Values that anybody can recompute."""

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize(
        ("estimator", "want"),
        [
            # d = reference - policy = -1, 0, 2
            ("k1", [1.0, 0.0, -2.0]),
            ("k2", [0.5, 0.0, 2.0]),
            ("k3", [0.36787944117144233, 0.0, 4.38905609893065]),  # 1/e - 0; e^2 - 3
        ],
    )
    def test_tokens(self, estimator: str, want: list[float], dtype: Any) -> None:
        """The three estimators of d = -1, 0 and 2."""
        policy, reference = np.array([-1, -3, -4], dtype), np.array([-2, -3, -2], dtype)
        got = rlkernels.token_kl(policy, reference, estimator=estimator)
        assert got.dtype == dtype
        assert got.tolist() == pytest.approx(want, rel=1e-7 if dtype is np.float32 else 1e-15)

    @pytest.mark.parametrize(
        ("options", "want"),
        [
            # k1 of the rows (1, 2, 4) and (8, 16, 32)
            pytest.param({"reduction": "sum"}, [7, 56], id="sum"),
            pytest.param({"reduction": "mean", "lengths": np.array([2, 1])}, [1.5, 8], id="prefix-mean"),
            pytest.param({"reduction": "sum", "lengths": np.array([0, 3])}, [0, 56], id="row-without-tokens"),
            pytest.param({"reduction": "mean", "mask": np.array([[0, 1, 1], [0, 0, 0]], bool)}, [3, 0], id="mask-mean"),
            pytest.param({"mask": np.array([[0, 1, 1], [1, 0, 0]], bool)}, [[0, 2, 4], [8, 0, 0]], id="mask-none"),
            pytest.param({"lengths": np.array([1, 2], np.uint8)}, [[1, 0, 0], [8, 16, 0]], id="prefix-none"),
        ],
    )
    def test_rows(self, options: dict[str, Any], want: list[Any]) -> None:
        """Reductions look at tokens only; other slots give 0."""
        policy = np.array([[1.0, 2, 4], [8, 16, 32]])
        got = rlkernels.token_kl(policy, np.zeros((2, 3)), estimator="k1", **options)
        assert got.tolist() == want

    def test_ragged(self) -> None:
        """Without padding, `lengths` cuts one long array into sequences."""
        policy = np.array([1, 2, 4, 8], np.float32)
        options: dict[str, Any] = {"estimator": "k1", "lengths": np.array([1, 0, 3])}
        zero = np.zeros_like(policy)
        assert rlkernels.token_kl(policy, zero, reduction="sum", **options).tolist() == [1, 0, 14]
        assert rlkernels.token_kl(policy, zero, reduction="mean", **options).tolist() == [1, 0, np.float32(14 / 3)]
        assert rlkernels.token_kl(policy, zero, **options).tolist() == [1, 2, 4, 8]

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_one_sequence_gives_a_scalar(self, dtype: Any) -> None:
        """(T,) without lengths reduces to a NumPy scalar of the data's type; without tokens it is 0."""
        result = rlkernels.token_kl(np.ones(4, dtype), np.zeros(4, dtype), estimator="k2", reduction="sum")
        assert (type(result), float(result)) == (dtype, 2.0)
        empty = rlkernels.token_kl(np.ones(0, dtype), np.zeros(0, dtype), estimator="k2", reduction="mean")
        assert (type(empty), float(empty)) == (dtype, 0.0)

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0)])
    def test_empty(self, shape: tuple[int, ...]) -> None:
        """Empty arrays give empty results, and rows without slots give 0."""
        empty = np.zeros(shape)
        assert rlkernels.token_kl(empty, empty, estimator="k3").shape == shape
        if len(shape) == 2:
            assert rlkernels.token_kl(empty, empty, estimator="k3", reduction="mean").tolist() == [0.0] * shape[0]


class TestAccuracy:
    """Within k * 2u of mpmath, k = 4 for float32 and 8 for float64."""

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    @pytest.mark.parametrize("sign", [1, -1])
    def test_from_tiny_to_large_differences(self, estimator: str, sign: int, dtype: Any) -> None:
        """|d| from 1e-8 to 30, exact in the data or not."""
        d = sign * np.geomspace(1e-8, 30, 300)
        policy = np.full(300, -0.1).astype(dtype)
        assert_accurate(policy, (policy + d).astype(dtype), estimator)
        assert_accurate(np.zeros(300, dtype), d.astype(dtype), estimator)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_at_the_limit_of_the_series(self, dtype: Any) -> None:
        """Both sides of |d| = 2 are accurate."""
        d = np.array([s * x for s in (1, -1) for x in (2, np.nextafter(2, 0), np.nextafter(2, 3), 1.99, 2.01)])
        assert_accurate(np.zeros(10, dtype), d.astype(dtype), "k3")

    @given(
        pairs=st.lists(st.tuples(st.floats(-745, 0), st.floats(-745, 0)), min_size=1, max_size=20),
        dtype=st.sampled_from(FLOATS),
        estimator=st.sampled_from(ESTIMATORS),
    )
    @example(pairs=[(0.0, -1.1e-106)], dtype=np.float64, estimator="k3")
    @settings(max_examples=100, deadline=None)
    def test_any_log_probabilities(self, pairs: list[tuple[float, float]], dtype: Any, estimator: str) -> None:
        """Any pair, also where the low part of the difference counts 700-fold."""
        policy, reference = np.array(pairs, dtype).T.copy()
        assert_accurate(policy, reference, estimator)

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_sums(self, estimator: str, dtype: Any) -> None:
        """The sum of 5000 tokens is within k * 2u of the exact sum, relative to the sum of magnitudes."""
        generator = np.random.default_rng(3)
        policy = generator.normal(-2, 1, 5000).astype(dtype)
        reference = (policy + generator.normal(0, 0.3, 5000)).astype(dtype)
        got = rlkernels.token_kl(policy, reference, estimator=estimator, reduction="sum")
        terms = [exact(p, r, estimator) for p, r in zip(policy, reference, strict=True)]
        assert abs(float(got) - mpmath.fsum(terms)) <= LIMIT[dtype] * mpmath.fsum(terms, absolute=True)


class TestSpecialValues:
    """NaN, infinities and overflow."""

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize(
        ("policy", "reference", "want"),
        [
            pytest.param(-INF, -1, (-INF, INF, INF), id="policy-inf"),
            pytest.param(-1, -INF, (INF, INF, INF), id="reference-inf"),
            pytest.param(-800, 0, (-800, 320000, INF), id="exp-overflows"),
            pytest.param(0, -800, (800, 320000, 799), id="exp-underflows"),
        ],
    )
    def test_infinities(self, policy: float, reference: float, want: tuple[float, ...], dtype: Any) -> None:
        """An overflow is +inf and never NaN."""
        pair = np.array([policy], dtype), np.array([reference], dtype)
        assert tuple(rlkernels.token_kl(*pair, estimator=e).item() for e in ESTIMATORS) == want

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    @pytest.mark.parametrize(("policy", "reference"), [(NAN, 0), (0, -NAN), (-INF, -INF), (INF, INF)])
    def test_nan_is_the_positive_quiet_one(self, policy: float, reference: float, estimator: str) -> None:
        """Every NaN has the same bits, on every machine."""
        for dtype, bits in ((np.float32, 0x7FC00000), (np.float64, 0x7FF8000000000000)):
            pair = np.array([policy], dtype), np.array([reference], dtype)
            token = rlkernels.token_kl(*pair, estimator=estimator)
            total = rlkernels.token_kl(*pair, estimator=estimator, reduction="sum")
            unsigned = np.uint32 if dtype is np.float32 else np.uint64
            assert [token.view(unsigned)[0], total.view(unsigned)] == [bits, bits]

    @pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_masked_slots_change_nothing(self, estimator: str, reduction: Any) -> None:
        """NaN and infinities in masked slots are never looked at."""
        mask = np.array([[True, False, True, False]])
        policy = np.array([[-1.0, NAN, -2.0, -INF]])
        reference = np.array([[-1.5, -INF, -2.5, NAN]])
        options: dict[str, Any] = {"estimator": estimator, "mask": mask, "reduction": reduction}
        got = rlkernels.token_kl(policy, reference, **options)
        clean = rlkernels.token_kl(np.where(mask, policy, 0), np.where(mask, reference, 0), **options)
        assert got.tobytes() == clean.tobytes()

    def test_a_sum_that_overflows(self) -> None:
        """Finite terms whose sum is beyond the type give +inf."""
        policy = np.zeros(4)
        reference = np.full(4, 709.5)  # exp(709.5) = 1.35e308: twice that is too much
        assert rlkernels.token_kl(policy, reference, estimator="k3", reduction="sum") == INF
        assert np.isfinite(rlkernels.token_kl(policy, reference, estimator="k3")).all()


class TestErrors:
    """A wrong input is named with its value."""

    @pytest.mark.parametrize(
        ("policy", "options", "message"),
        [
            pytest.param(np.zeros(3), {"estimator": "k4"}, '`estimator` is "k4", must be one of "k1"', id="estimator"),
            pytest.param(np.zeros(3), {"reduction": "max"}, '`reduction` is "max"', id="reduction"),
            pytest.param(np.zeros((1, 1, 1)), {}, r"`policy` has shape \(1, 1, 1\)", id="three-dimensions"),
            pytest.param(np.zeros(()), {}, r"`policy` has shape \(\)", id="zero-dimensions"),
            pytest.param(
                np.zeros(3), {"mask": np.ones(2, bool)}, r"`mask` has shape \(2,\), must be \(3,\)", id="mask"
            ),
            pytest.param(
                np.zeros(3), {"mask": np.ones(3, bool), "lengths": np.array([3])}, "both `mask` and", id="both"
            ),
            pytest.param(
                np.zeros(3), {"lengths": np.array([1, 1])}, "sum of `lengths` is 2, must be 3", id="ragged-sum"
            ),
            pytest.param(np.zeros(3), {"lengths": np.array([2**62] * 8)}, r"`lengths\[0\]` is 4611", id="huge-length"),
            pytest.param(
                np.zeros((2, 3)), {"lengths": np.array([3])}, "`lengths` has 1 elements, must have 2", id="rows"
            ),
            pytest.param(np.zeros((2, 3)), {"lengths": np.array([3, 4])}, r"`lengths\[1\]` is 4", id="too-long"),
            pytest.param(np.zeros((2, 3)), {"lengths": np.array([-1, 0])}, r"`lengths\[0\]` is -1", id="negative"),
            pytest.param(
                np.zeros(3), {"lengths": np.array([[3]])}, r"`lengths` has shape \(1, 1\)", id="lengths-shape"
            ),
            pytest.param(np.zeros(3), {"lengths": np.array([2**63], np.uint64)}, "`lengths` holds 9223", id="unsigned"),
        ],
    )
    def test_value_error(self, policy: np.ndarray[Any, Any], options: dict[str, Any], message: str) -> None:
        """The message names the argument and what was found."""
        with pytest.raises(ValueError, match=message):
            rlkernels.token_kl(policy, np.zeros_like(policy), **({"estimator": "k1"} | options))

    def test_shapes_differ(self) -> None:
        """Nothing is broadcast."""
        with pytest.raises(ValueError, match=r"`reference` has shape \(1, 3\), must be \(3,\) like `policy`"):
            rlkernels.token_kl(np.zeros(3), np.zeros((1, 3)), estimator="k1")

    @pytest.mark.parametrize(
        ("reference", "options", "message"),
        [
            pytest.param(np.zeros(3, np.float32), {}, "`policy` is float64 and `reference` is float32", id="mixed"),
            pytest.param(
                np.zeros(3), {"mask": np.ones(3, complex)}, "`mask` is an array of complex128", id="complex-mask"
            ),
            pytest.param(np.zeros(3), {"mask": "yes"}, "`mask` is of type str", id="text-mask"),
            pytest.param(np.zeros(3), {"lengths": np.ones(1)}, "`lengths` is an array of float64", id="float-lengths"),
            pytest.param(
                np.zeros(3), {"lengths": np.ones(1, bool)}, "`lengths` is an array of bool", id="bool-lengths"
            ),
        ],
    )
    def test_type_error(self, reference: Any, options: dict[str, Any], message: str) -> None:
        """The message says what was found and how to convert it."""
        with pytest.raises(TypeError, match=message):
            rlkernels.token_kl(np.zeros(3), reference, estimator="k1", **options)
