"""The NumPy baseline's ratios, corrections and statistics on hand-worked numbers."""

import math
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import ratio as subject

NAN, INF = math.nan, math.inf
LN2 = math.log(2)
# Ratios of the tokens that count: 2, 1/4 | 2; the third row is empty. Masked slots are poisoned.
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], bool)
OLD = np.where(MASK, -3.0, NAN)
POLICY = OLD + np.array([[LN2, -2 * LN2, 0], [LN2, 0, 0], [0, 0, 0]])
LENGTHS = np.array([2, 1, 0])


class TestRatio:
    """exp of a difference, of its mean, of its sum."""

    @pytest.mark.parametrize(
        ("level", "want"),
        [
            ("token", [[2, 0.25, 0], [2, 0, 0], [0, 0, 0]]),
            ("seq_mean", [0.5**0.5, 2, 1]),
            ("seq_sum", [0.5, 2, 1]),
        ],
    )
    def test_by_hand(self, level: str, want: list[Any]) -> None:
        """Product 1/2, geometric mean 1/sqrt(2); an empty row has ratio 1, a masked slot 0."""
        got = subject.importance_ratio(POLICY, OLD, level=level, mask=MASK)
        np.testing.assert_allclose(got, want, rtol=1e-15)
        flat = subject.importance_ratio(POLICY[MASK], OLD[MASK], level=level, lengths=LENGTHS)
        np.testing.assert_array_equal(flat, got[MASK] if level == "token" else got)

    def test_differences_keep_their_digits(self) -> None:
        """Log-probs -2**-50 and -32 differ by 32 less 2**-50, which float64 rounds to 32: exp keeps those 8 u."""
        near = subject.token_ratio(np.array([-(2.0**-50)]), np.array([-32.0]))
        assert near[0] == pytest.approx(math.exp(32) * (1 - 2.0**-50), rel=2.0**-52)
        terms = np.array([[0.1, 0.2, 0.3, -0.6 + 2.0**-50]])
        exact = math.fsum(terms[0])
        assert subject.sequence_ratio(terms, np.zeros((1, 4)), 1)[0, 0] == math.exp(exact)

    def test_float32_stays_float32(self) -> None:
        """The ratio has the dtype of the data."""
        pair = np.zeros((1, 2), np.float32)
        assert subject.importance_ratio(pair, pair, level="seq_sum").dtype == np.float32


class TestWeights:
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
        got = subject.importance_weights(
            POLICY, OLD, correction=correction, level=level, c_min=c_min, c_max=c_max, mask=MASK
        )
        np.testing.assert_allclose(got, want, rtol=1e-15)

    def test_bounds_are_inclusive_and_unrecorded_is_equal(self) -> None:
        """A ratio of 1 stays inside [1, 1], and NaN is a ratio of 1."""
        old = np.array([[-1.0, -1.0]])
        got = subject.importance_weights(
            old, np.array([[-1.0, NAN]]), correction="mis", level="token", c_min=1.0, c_max=1.0
        )
        assert got.tolist() == [[1.0, 1.0]]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"correction": "ais"}, "`correction` is 'ais'"),
            ({"level": "seq_mean"}, "`level` is 'seq_mean'"),
            ({"c_min": 3.0}, "`c_min`, `c_max` are 3.0, 2.0"),
            ({"c_max": 0.0}, "`c_min`, `c_max` are None, 0.0"),
            ({"lengths": LENGTHS}, "`mask` and `lengths` are both given"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        """The error names unknown conventions and reversed bounds."""
        options: dict[str, Any] = {"correction": "tis", "level": "token", "c_min": None, "c_max": 2.0, "mask": MASK}
        with pytest.raises(ValueError, match=message):
            subject.importance_weights(POLICY, OLD, **options | change)


class TestStatistics:
    """D = log 2 (1, -2 | 1), sums log 2 (-1 | 1); the first row is bad, the second good."""

    @pytest.mark.parametrize(
        ("name", "want"),
        [
            ("mean", 4.25 / 3),
            ("max_abs", 2 * LN2),
            ("p99_abs", 1.98 * LN2),
            ("k3", ((2 - LN2 - 1) * 2 + (0.25 + 2 * LN2 - 1)) / 3),
            ("chi2", (3 + 3 - 15 / 16) / 3),
            ("ess_per_n", 4.25**2 / (3 * (8 + 1 / 16))),
            ("mult_err", 8 / 3),
            ("outside_low", 1 / 3),
            ("outside_high", 2 / 3),
            ("clipped_low", 1 / 3),
            ("clipped_high", 1 / 3),
            ("seq_sum_mean", 1.25),
            ("seq_sum_chi2", 9 / 8),
            ("seq_sum_clipped_low", 0.5),
            ("min_sequence_ratio", 0.5),
            ("max_sequence_ratio", 2.0),
        ],
    )
    def test_by_hand(self, name: str, want: float) -> None:
        """Each statistic equals its formula."""
        gains = np.array([-1.0, 1.0, 1.0])
        bounds = {"epsilon_low": 0.4, "epsilon_high": 0.5, "mask": MASK}
        got = subject.ratio_statistics(POLICY, OLD, advantages=gains, **bounds)
        assert got[name] == pytest.approx(want, rel=1e-14)
        less = subject.ratio_statistics(POLICY, OLD, **bounds)
        assert less == {key: value for key, value in got.items() if "clipped" not in key}

    def test_no_token_is_an_error(self) -> None:
        """Statistics of nothing are not 0."""
        with pytest.raises(ValueError, match="holds no token"):
            subject.ratio_statistics(POLICY, OLD, epsilon_low=0.2, epsilon_high=0.2, mask=MASK & False)
