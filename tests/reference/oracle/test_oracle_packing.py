"""Packings are judged right, and first-fit-decreasing packs as written down by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates_reference.oracle.packing import (
    best_fit_decreasing,
    check_packing,
    first_fit_decreasing,
    lower_bound,
    pack_sequences,
)


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


@settings(max_examples=50, deadline=None, database=None)
@given(st.lists(st.integers(0, 20), max_size=40))
def test_best_fit_decreasing_each_step_takes_the_fullest_bin(lengths: list[int]) -> None:
    """Replayed step by step from the bins alone, every placement was the fullest bin with room, lowest on ties."""
    bins = best_fit_decreasing(lengths, 20)
    assert check_packing(lengths, 20, bins) == []
    home = {index: number for number, content in enumerate(bins) for index in content}
    fills = [0] * len(bins)
    opened = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = [number for number in range(opened) if fills[number] + lengths[index] <= 20]
        most = max((fills[number] for number in room), default=-1)
        wanted = next((number for number in room if fills[number] == most), opened)
        assert home[index] == wanted
        opened = max(opened, wanted + 1)
        fills[wanted] += lengths[index]


class TestPackSequences:
    """The op: bins as offsets, and how full they are."""

    def test_by_hand(self) -> None:
        """7 + 3 and 6 + 2 of bins of ten: 18 of 20 slots."""
        indices, offsets, efficiency = pack_sequences(
            [7, 6, 2, 3], 10, strategy="best-fit-decreasing", over_long="error"
        )
        assert (indices.tolist(), offsets.tolist(), efficiency) == ([0, 3, 1, 2], [0, 2, 4], 0.9)

    def test_nothing_is_packed_perfectly(self) -> None:
        indices, offsets, efficiency = pack_sequences([], 10, strategy="first-fit-decreasing", over_long="error")
        assert (indices.tolist(), offsets.tolist(), efficiency) == ([], [0], 1.0)

    def test_truncation_by_name(self) -> None:
        """14 tokens count as ten and come before a sequence of ten only by index; asked for errors, it is one."""
        indices, offsets, efficiency = pack_sequences(
            [3, 10, 14], 10, strategy="first-fit-decreasing", over_long="truncate"
        )
        assert (indices.tolist(), offsets.tolist(), efficiency) == ([1, 2, 0], [0, 1, 2, 3], 23 / 30)
        with pytest.raises(ValueError, match="`lengths` is 14"):
            pack_sequences([3, 14], 10, strategy="first-fit-decreasing", over_long="error")

    @pytest.mark.parametrize(
        ("strategy", "over_long", "message"),
        [("next-fit", "error", "`strategy` is 'next-fit'"), ("best-fit-decreasing", "drop", "`over_long` is 'drop'")],
    )
    def test_errors(self, strategy: str, over_long: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            pack_sequences([1], 10, strategy=strategy, over_long=over_long)


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
def test_check_packing_by_hand(bins: list[list[int]], problems: list[str]) -> None:
    """Lengths 4 5 3 in bins of ten."""
    assert check_packing([4, 5, 3], 10, bins) == problems


@pytest.mark.parametrize(("lengths", "bound"), [([], 0), ([0], 0), ([10], 1), ([10, 1], 2), ([5, 5, 5], 2)])
def test_lower_bound_by_hand(lengths: list[int], bound: int) -> None:
    assert lower_bound(lengths, 10) == bound
