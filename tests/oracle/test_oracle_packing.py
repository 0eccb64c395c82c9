"""Packings are judged right, and first-fit-decreasing packs as written down by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.oracle.packing import check_packing, first_fit_decreasing, lower_bound


class TestFirstFitDecreasing:
    """Longest first, lowest index among equals, first bin that fits."""

    @pytest.mark.parametrize(
        ("lengths", "bins"),
        [
            pytest.param([], [], id="nothing"),
            # order 1(7) 4(6) 0(4) 2(4) 3(3): 7 | 6 | 6+4 | 4 -> third | 7+3
            pytest.param([4, 7, 4, 3, 6], [[1, 3], [4, 0], [2]], id="by hand, max 10"),
            pytest.param([5, 5, 5], [[0, 1], [2]], id="ties by index"),
            pytest.param([0, 10, 0], [[1, 0, 2]], id="empty sequences fit in a full bin"),
            pytest.param([10], [[0]], id="exactly full"),
        ],
    )
    def test_by_hand(self, lengths: list[int], bins: list[list[int]]) -> None:
        """Bins of ten."""
        assert first_fit_decreasing(lengths, 10) == bins

    @settings(max_examples=50, deadline=None, database=None)
    @given(st.lists(st.integers(0, 20), max_size=40))
    def test_is_valid_and_near_optimal(self, lengths: list[int]) -> None:
        """No problem is found, no fewer bins than the bound, and no bin was opened while an earlier one had room."""
        bins = first_fit_decreasing(lengths, 20)
        assert check_packing(lengths, 20, bins) == []
        assert len(bins) >= lower_bound(lengths, 20)
        # the item that opened a bin fits in no earlier one as that ended up, or it would have gone there
        assert all(sum(lengths[i] for i in a) + lengths[b[0]] > 20 for at, a in enumerate(bins) for b in bins[at + 1 :])

    @pytest.mark.parametrize(
        ("lengths", "width", "message"),
        [
            ([1, 11], 10, r"`lengths` is 11, must be in \[0, 11\) \(at index \(1,\)\)"),
            ([1, -2], 10, "`lengths` is -2"),
            ([1.5], 10, "dtype float64"),
            ([1], 0, "`max_length` is 0"),
            ([[1]], 10, "must be"),
        ],
    )
    def test_errors(self, lengths: list[int], width: int, message: str) -> None:
        """An over-long or negative sequence is named by index and length."""
        for function in (first_fit_decreasing, lower_bound):
            with pytest.raises(ValueError, match=message):
                function(lengths, width)


class TestCheckPacking:
    """Every defect has its sentence."""

    @pytest.mark.parametrize(
        ("bins", "problems"),
        [
            ([[0, 1], [2]], []),
            ([np.array([2, 0]), np.array([1])], []),
            ([[0, 2], [1]], []),
            ([[0, 1, 2]], ["bin 0 holds 12 tokens, must be at most 10"]),
            ([[0, 1]], ["sequence 2 is in no bin"]),
            ([[0, 1], [2, 0]], ["sequence 0 is in bin 0 and again in bin 1"]),
            ([[0, 1], [2, 2]], ["sequence 2 is in bin 1 and again in bin 1"]),
            ([[0, 1], [2], []], ["bin 2 is empty"]),
            ([[0, 1], [2, 3]], ["bin 1 holds sequence 3, must be in [0, 3)"]),
            ([[0, 1], [2, -1]], ["bin 1 holds sequence -1, must be in [0, 3)"]),
        ],
    )
    def test_by_hand(self, bins: list[list[int]], problems: list[str]) -> None:
        """Lengths 4 5 3 in bins of ten."""
        assert check_packing([4, 5, 3], 10, bins) == problems


class TestLowerBound:
    """Ceil of total over width."""

    @pytest.mark.parametrize(("lengths", "bound"), [([], 0), ([0], 0), ([10], 1), ([10, 1], 2), ([5, 5, 5], 2)])
    def test_by_hand(self, lengths: list[int], bound: int) -> None:
        """Bins of ten."""
        assert lower_bound(lengths, 10) == bound
