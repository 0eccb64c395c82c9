"""Ratios, corrections and their statistics equal hand computations."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from reference.oracle.ratio import importance_weights, sequence_ratio, token_ratio
from reference.oracle.statistics import ratio_statistics

NAN = math.nan
LN2 = math.log(2)
# Two rows; ratios of the tokens that count: 2, 1/4 | 2; row 2 is empty. Masked slots are poisoned.
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
OLD = np.where(MASK == 1, -3.0, NAN)
POLICY = OLD + np.array([[LN2, -2 * LN2, 0], [LN2, 0, 0], [0, 0, 0]])


class TestRatios:
    """exp of differences, of their mean and of their sum."""

    def test_token(self) -> None:
        """Differences log 2, -log 4 and log 2; masked slots are 0."""
        np.testing.assert_allclose(token_ratio(POLICY, OLD, MASK), [[2, 0.25, 0], [2, 0, 0], [0, 0, 0]], rtol=1e-15)

    def test_sequence(self) -> None:
        """Product 2 * 1/4 = 1/2, geometric mean 1/sqrt(2); an empty row has ratio 1."""
        np.testing.assert_allclose(sequence_ratio(POLICY, OLD, MASK, level="seq_sum"), [0.5, 2, 1], rtol=1e-15)
        np.testing.assert_allclose(sequence_ratio(POLICY, OLD, MASK, level="seq_mean"), [0.5**0.5, 2, 1], rtol=1e-15)

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
        """Each statistic equals its formula."""
        assert got[name] == pytest.approx(want, rel=1e-14)

    def test_without_advantages_nothing_is_clipped(self, got: dict[str, float]) -> None:
        """The clipped shares are absent, and nothing else is."""
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
