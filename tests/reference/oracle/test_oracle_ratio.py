"""Ratios, corrections and their statistics equal hand computations."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from gates_reference.oracle.ratio import (
    importance_ratio,
    importance_weights,
    near_bound,
    ratio_scale,
    sequence_ratio,
    token_ratio,
)
from gates_reference.oracle.statistics import measured, ratio_statistics

NAN = math.nan
LN2 = math.log(2)
# Two rows; ratios of the tokens that count: 2, 1/4 | 2; row 2 is empty. Masked slots are poisoned.
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
OLD = np.where(MASK == 1, -3.0, NAN)
POLICY = OLD + np.array([[LN2, -2 * LN2, 0], [LN2, 0, 0], [0, 0, 0]])


class TestRatios:
    """exp of differences, of their mean and of their sum."""

    def test_overflow_is_inf(self) -> None:
        """exp(800) is +inf, without a warning."""
        assert token_ratio([[0.0]], [[-800.0]], [[1]])[0, 0] == math.inf

    @pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
    def test_agrees_with_mpmath(self, spread: float) -> None:
        """Ratios of float64 data are within 2 * 2u of forty digits, however many nats they span."""
        rng = np.random.default_rng(1)
        policy, old = rng.normal(-2, spread, (2, 5, 30))
        got = sequence_ratio(policy, old, np.ones((5, 30)), level="seq_sum")
        tokens = token_ratio(policy, old, np.ones((5, 30)))
        with mpmath.workdps(40):
            for row in range(5):
                terms = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in zip(policy[row], old[row], strict=True)]
                want = mpmath.exp(mpmath.fsum(terms))
                assert abs(got[row] - want) <= 4 * 2.0**-53 * want
                for ratio, term in zip(tokens[row], terms, strict=True):
                    assert abs(ratio - mpmath.exp(term)) <= 4 * 2.0**-53 * mpmath.exp(term)

    @pytest.mark.parametrize("spread", [1.0, 40.0])
    def test_mean_agrees_with_mpmath(self, spread: float) -> None:
        """The geometric mean is within 2 * 2u of forty digits: the mean's own rounding is carried."""
        rng = np.random.default_rng(2)
        policy, old = rng.normal(-2, spread, (2, 5, 7)) / 3
        got = importance_ratio(policy, old, level="seq_mean")
        with mpmath.workdps(40):
            for row in range(5):
                terms = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in zip(policy[row], old[row], strict=True)]
                want = mpmath.exp(mpmath.fsum(terms) / 7)
                assert abs(got[row] - want) <= 4 * 2.0**-53 * want

    @pytest.mark.parametrize("level", ["token", "seq_mean", "seq_sum"])
    def test_layouts(self, level: str) -> None:
        """Lengths and flat rows give what the mask gives that they mean."""
        lengths = np.array([2, 1, 0])
        want = importance_ratio(POLICY, OLD, level=level, mask=MASK)
        np.testing.assert_array_equal(importance_ratio(POLICY, OLD, level=level, lengths=lengths), want)
        flat = importance_ratio(POLICY[MASK == 1], OLD[MASK == 1], level=level, lengths=lengths)
        np.testing.assert_array_equal(flat, want[MASK == 1] if level == "token" else want)

    def test_scale(self) -> None:
        """A token's unit is its ratio; a sequence's grows with u sum |d|: row 0 has |d| = 3 log 2."""
        np.testing.assert_allclose(
            ratio_scale(POLICY, OLD, level="seq_sum", mask=MASK, u=0.5), [0.5 * (1 + 1.5 * LN2), 2 * (1 + LN2 / 2), 1]
        )
        assert ratio_scale(POLICY, OLD, level="token", mask=MASK, u=0.5)[0, 1] == pytest.approx(0.25)

    def test_near_a_bound(self) -> None:
        """Sixteen ulp of the dtype on either side; an infinite bound has no neighbours."""
        step = 2.0**-23
        ratios = np.array([1.0, 1 + 16 * step, 1 + 17 * step, 1 - 16 * step, math.inf])
        got = near_bound(ratios, (1.0, math.inf), np.dtype("float32"))
        assert got.tolist() == [True, True, False, True, False]

    def test_unknown_level(self) -> None:
        """A level is seq_mean or seq_sum."""
        with pytest.raises(ValueError, match="`level` is 'token'"):
            sequence_ratio(POLICY, OLD, MASK, level="token")


class TestImportanceWeights:
    """TIS clamps, MIS drops."""

    @pytest.mark.parametrize(
        ("correction", "level", "c_min", "c_max", "want"),
        [
            ("tis", "token", None, 1.5, [[1.5, 0.25, 0], [1.5, 0, 0], [0, 0, 0]]),
            ("tis", "token", 0.5, 1.5, [[1.5, 0.5, 0], [1.5, 0, 0], [0, 0, 0]]),
            ("mis", "token", 0.5, 3.0, [[2, 0, 0], [2, 0, 0], [0, 0, 0]]),
            ("mis", "token", None, 1.5, [[0, 0.25, 0], [0, 0, 0], [0, 0, 0]]),
            ("tis", "seq_sum", 0.75, 1.5, [0.75, 1.5, 1]),
            ("mis", "seq_sum", 0.75, 3.0, [0, 2, 1]),
        ],
    )
    def test_by_hand(self, correction: str, level: str, c_min: float | None, c_max: float, want: list[Any]) -> None:
        """Token ratios 2, 1/4 | 2 and sequence ratios 1/2, 2, 1."""
        got = importance_weights(POLICY, OLD, MASK, correction=correction, level=level, c_min=c_min, c_max=c_max)
        np.testing.assert_allclose(got, want, rtol=1e-15)

    def test_mis_includes_its_bounds(self) -> None:
        """A ratio of exactly 1 stays inside [1, 1]."""
        got = importance_weights([[-1.0]], [[-1.0]], [[1]], correction="mis", level="token", c_min=1.0, c_max=1.0)
        assert got[0, 0] == 1

    @pytest.mark.parametrize("level", ["token", "seq_sum"])
    def test_unrecorded_sampling_counts_as_equal(self, level: str) -> None:
        """A NaN sampling log-prob is a difference of 0."""
        got = importance_weights([[-1.0]], [[NAN]], [[1]], correction="tis", level=level, c_min=None, c_max=5.0)
        assert got.item() == 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"correction": "ais"}, "`correction`"),
            ({"level": "seq_mean"}, "`level`"),
            ({"c_min": 3.0}, "`c_min` is 3.0"),
            ({"c_max": 0.0}, "`c_max` is 0.0"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        """Unknown conventions and bounds out of order are refused."""
        options: dict[str, Any] = {"correction": "tis", "level": "token", "c_min": None, "c_max": 2.0}
        with pytest.raises(ValueError, match=message):
            importance_weights(POLICY, OLD, MASK, **options | change)


class TestRatioStatistics:
    """Every number by hand: D = log 2 (1, -2 | 1), sums log 2 (-1 | 1)."""

    @pytest.fixture
    def got(self) -> dict[str, float]:
        """Clip at 0.6 and 1.5; the first row is bad, the second good, the empty one is not read."""
        return ratio_statistics(
            POLICY, OLD, MASK, epsilon_low=0.4, epsilon_high=0.5, advantages=np.array([-1.0, 1.0, 1.0])
        )

    @pytest.mark.parametrize(
        ("name", "want"),
        [
            ("mean", (2 + 0.25 + 2) / 3),
            ("max_abs", 2 * LN2),
            ("p99_abs", LN2 * (1 + 0.98)),  # position 0.99 * 2 = 1.98 in (1, 1, 2) log 2
            ("k3", ((2 - LN2 - 1) * 2 + (0.25 + 2 * LN2 - 1)) / 3),
            ("chi2", (3 + 3 - 15 / 16) / 3),  # r**2 - 1
            ("ess_per_n", 4.25**2 / (3 * (4 + 4 + 1 / 16))),
            ("mult_err", (2 + 4 + 2) / 3),
            ("outside_low", 1 / 3),
            ("outside_high", 2 / 3),
            ("clipped_low", 1 / 3),  # the 1/4, in the bad row
            ("clipped_high", 1 / 3),  # the 2 of the good row only
            ("seq_sum_mean", 1.25),
            ("seq_sum_max_abs", LN2),
            ("seq_sum_p99_abs", LN2),
            ("seq_sum_k3", ((2 - LN2 - 1) + (0.5 + LN2 - 1)) / 2),
            ("seq_sum_chi2", (3 - 3 / 4) / 2),
            ("seq_sum_ess_per_n", 2.5**2 / (2 * 4.25)),
            ("seq_sum_mult_err", 2.0),
            ("seq_sum_outside_low", 0.5),
            ("seq_sum_outside_high", 0.5),
            ("seq_sum_clipped_low", 0.5),
            ("seq_sum_clipped_high", 0.5),
            ("min_sequence_ratio", 0.5),
            ("max_sequence_ratio", 2.0),
        ],
    )
    def test_by_hand(self, got: dict[str, float], name: str, want: float) -> None:
        assert got[name] == pytest.approx(want, rel=1e-14)

    def test_without_advantages_nothing_is_clipped(self, got: dict[str, float]) -> None:
        less = ratio_statistics(POLICY, OLD, MASK, epsilon_low=0.4, epsilon_high=0.5, advantages=None)
        assert less == {name: value for name, value in got.items() if "clipped" not in name}
        assert len(got) == 24

    def test_overflow(self) -> None:
        """A difference of 800 gives infinite moments and an effective sample of one in two."""
        got = ratio_statistics(
            [[0.0, -1]], [[-800.0, -1]], [[1, 1]], epsilon_low=0.2, epsilon_high=0.2, advantages=None
        )
        assert got["mean"] == got["chi2"] == got["k3"] == math.inf
        assert got["ess_per_n"] == 0.5

    def test_no_token_is_an_error(self) -> None:
        """Statistics of nothing are not 0."""
        with pytest.raises(ValueError, match="no token"):
            ratio_statistics(POLICY, OLD, MASK * 0, epsilon_low=0.2, epsilon_high=0.2, advantages=None)

    @pytest.mark.parametrize("spread", [0.05, 3.0])
    def test_agrees_with_mpmath(self, spread: float) -> None:
        """Means and the ESS of float64 data are within 2 of their own units of 2u of forty digits."""
        rng = np.random.default_rng(3)
        policy = rng.uniform(-4, 0, (4, 60)) / 3
        behaviour = policy - rng.normal(0, spread, policy.shape) / 3
        found = measured(policy, behaviour, epsilon_low=0.2, epsilon_high=0.2, advantages=None)
        with mpmath.workdps(40):
            d = [mpmath.mpf(a) - mpmath.mpf(b) for a, b in zip(policy.flat, behaviour.flat, strict=True)]
            r = [mpmath.exp(x) for x in d]
            n = len(d)
            tail = sorted(abs(x) for x in d)
            place = mpmath.mpf(99 * (n - 1)) / 100
            low = int(place)
            want = {
                "mean": mpmath.fsum(r) / n,
                "k3": mpmath.fsum(mpmath.expm1(x) - x for x in d) / n,
                "chi2": mpmath.fsum(mpmath.expm1(2 * x) for x in d) / n,
                "ess_per_n": mpmath.fsum(r) ** 2 / (n * mpmath.fsum(x * x for x in r)),
                "mult_err": mpmath.fsum(mpmath.exp(abs(x)) for x in d) / n,
                "p99_abs": tail[low] + (tail[low + 1] - tail[low]) * (place - low),
                "max_abs": tail[-1],
            }
            for name, exact in want.items():
                assert abs(found.values[name] - exact) <= 2 * 2 * 2.0**-53 * found.scales[name], name

    def test_share_at_a_bound(self) -> None:
        """Two of four ratios are exp(log 1.25), within 16 ulp of the upper bound; either side is right for them."""
        d = np.array([[math.log(1.25), math.log(1.25), 0.0, 1.0]])
        found = measured(d, np.zeros((1, 4)), epsilon_low=0.25, epsilon_high=0.25, advantages=[1.0])
        assert found.near["outside_high"] == found.near["clipped_high"] == 0.5
        assert found.near["outside_low"] == 0.0
        assert found.values["outside_high"] in {0.25, 0.5, 0.75}
