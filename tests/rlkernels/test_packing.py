"""`rlkernels.pack_sequences`: by hand, its invariants and its errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlkernels
from gates_reference.oracle.packing import first_fit_decreasing

STRATEGIES = ["first-fit-decreasing", "best-fit-decreasing"]


def bins(lengths: list[int], max_length: int, **options: Any) -> list[list[int]]:
    """The packing as lists of original indices."""
    indices, offsets, _ = rlkernels.pack_sequences(np.array(lengths, np.int64), max_length, **options)
    assert (indices.dtype, offsets.dtype) == (np.int64, np.int64)
    return [indices[a:b].tolist() for a, b in itertools.pairwise(offsets)]


class TestByHand:
    """Packings that anybody can redo on paper."""

    @pytest.mark.parametrize(
        ("lengths", "max_length", "want"),
        [
            # longest first: 5, 4 (does not fit to 5 in 8), 3 fits to 5, 2 fits to 4
            pytest.param([2, 5, 3, 4], 8, [[1, 2], [3, 0]], id="first-fit-decreasing"),
            pytest.param([3, 3, 3], 6, [[0, 1], [2]], id="ties-keep-their-order"),
            pytest.param([0, 4, 0], 4, [[1, 0, 2]], id="no-length-takes-no-room"),
            pytest.param([0, 0], 1, [[0, 1]], id="only-empty"),
            pytest.param([], 4, [], id="nothing"),
            pytest.param([7], 7, [[0]], id="exactly-full"),
            pytest.param([2**62, 2**62, 1], 2**63 - 1, [[0, 2], [1]], id="near-the-end-of-int64"),
        ],
    )
    def test_bins(self, lengths: list[int], max_length: int, want: list[list[int]]) -> None:
        """The bins are those found by hand, where both strategies agree."""
        assert bins(lengths, max_length) == want
        assert bins(lengths, max_length, strategy="best-fit-decreasing") == want

    @pytest.mark.parametrize(
        ("lengths", "max_length", "first", "best"),
        [
            # 5; then 3 and 3 together; the 1 fits to the 5, which is first, and to the 3s, which are fuller
            pytest.param([5, 3, 3, 1], 7, [[0, 3], [1, 2]], [[0], [1, 2, 3]], id="fullest"),
            # two bins with 2 left: the first of them, although the other was filled later
            pytest.param([6, 6, 2], 8, [[0, 2], [1]], [[0, 2], [1]], id="ties-go-to-the-first"),
            # 6 then 8 full: no length goes into the first bin, or into the fullest
            pytest.param([8, 9, 0, 0], 10, [[1, 2, 3], [0]], [[1, 2, 3], [0]], id="no-length"),
            pytest.param([6, 4, 4, 0], 8, [[0, 3], [1, 2]], [[0], [1, 2, 3]], id="no-length-goes-to-the-fullest"),
        ],
    )
    def test_strategies(self, lengths: list[int], max_length: int, first: list[Any], best: list[Any]) -> None:
        """First fit takes the first bin with room, best fit the fullest."""
        assert bins(lengths, max_length, strategy="first-fit-decreasing") == first
        assert bins(lengths, max_length, strategy="best-fit-decreasing") == best

    @pytest.mark.parametrize(
        ("strategy", "want"),
        [
            # the example in TRL's docstring of pack_dataset: [1 2 3 4], [8 9 10 5], [6 7 11]
            ("best-fit-decreasing", [[(0, 0, 4)], [(2, 0, 3), (0, 4, 1)], [(1, 0, 2), (3, 0, 1)]]),
            ("first-fit-decreasing", [[(0, 0, 4)], [(2, 0, 3), (0, 4, 1)], [(1, 0, 2), (3, 0, 1)]]),
            # [1 2 3 4], [5 6 7 8], [9 10 11]
            ("wrapped", [[(0, 0, 4)], [(0, 4, 1), (1, 0, 2), (2, 0, 1)], [(2, 1, 2), (3, 0, 1)]]),
        ],
    )
    def test_pieces(self, strategy: Any, want: list[list[tuple[int, int, int]]]) -> None:
        """Sequences of 5, 2, 3 and 1 tokens in bins of 4; one without tokens has no piece."""
        lengths = np.array([5, 2, 3, 1, 0])
        indices, offsets, efficiency, starts, sizes = rlkernels.pack_sequences(
            lengths, 4, strategy=strategy, over_long="split"
        )
        pieces = list(zip(indices.tolist(), starts.tolist(), sizes.tolist(), strict=True))
        assert [pieces[a:b] for a, b in itertools.pairwise(offsets)] == want
        assert efficiency == 11 / 12
        assert rlkernels.pack_sequences(lengths[4:], 4, strategy=strategy, over_long="split")[2] == 1.0

    def test_wrapped_cuts_only_by_name(self) -> None:
        """It cuts sequences, so it has to be allowed to."""
        with pytest.raises(ValueError, match='`over_long` is "error", must be one of "split": strategy "wrapped" cuts'):
            rlkernels.pack_sequences(np.array([1]), 4, strategy="wrapped")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="the pieces of all sequences"):
            rlkernels.pack_sequences(np.array([2**62]), 1, over_long="split")

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_truncation_is_asked_for_by_name(self, strategy: str) -> None:
        """A longer sequence counts as a full bin; cutting it is the caller's business."""
        assert bins([3, 20, 1, 9], 8, strategy=strategy, over_long="truncate") == [[1], [3], [0, 2]]

    @pytest.mark.parametrize(
        ("lengths", "max_length", "options", "want"),
        [
            ([5, 3, 3, 1], 7, {}, 12 / 14),
            ([], 4, {}, 1.0),
            ([0], 4, {}, 0.0),
            ([20, 4], 8, {"over_long": "truncate"}, 12 / 16),
            ([2**62, 2**62], 2**63 - 1, {}, 0.5),
        ],
    )
    def test_efficiency(self, lengths: list[int], max_length: int, options: Any, want: float) -> None:
        """The tokens kept over the room of all bins."""
        *_, efficiency = rlkernels.pack_sequences(np.array(lengths, np.int64), max_length, **options)
        assert efficiency == want


@given(
    lengths=st.lists(st.integers(0, 50), max_size=200),
    max_length=st.integers(50, 120),
    strategy=st.sampled_from(STRATEGIES),
)
def test_every_sequence_once_and_no_bin_too_full(lengths: list[int], max_length: int, strategy: str) -> None:
    """A permutation; no bin over its room; at most one bin not more than half full."""
    packed = bins(lengths, max_length, strategy=strategy)
    fill = [sum(lengths[i] for i in one) for one in packed]
    assert sorted(i for one in packed for i in one) == list(range(len(lengths)))
    assert all(f <= max_length for f in fill)
    assert sum(2 * f <= max_length for f in fill) <= 1


@given(lengths=st.lists(st.integers(0, 50), max_size=100), max_length=st.integers(50, 90))
def test_first_fit_is_the_oracles(lengths: list[int], max_length: int) -> None:
    """The same bins as the oracle, which searches them all."""
    assert bins(lengths, max_length) == first_fit_decreasing(np.array(lengths, np.int64), max_length)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "bfd"}, '`strategy` is "bfd", must be one of "first-fit-decreasing", "best-fit-decreasing"'),
        ({"over_long": "cut"}, '`over_long` is "cut", must be one of "error", "truncate", "split"'),
    ],
)
def test_unknown_options(options: dict[str, Any], message: str) -> None:
    """The legal names are listed."""
    with pytest.raises(ValueError, match=message):
        rlkernels.pack_sequences(np.array([1]), 8, **options)


@pytest.mark.parametrize(
    ("lengths", "max_length", "error", "message"),
    [
        (np.array([1, 9]), 8, ValueError, r"`lengths\[1\]` is 9, must be between 0 and 8"),
        (np.array([-1]), 8, ValueError, r"`lengths\[0\]` is -1"),
        (np.array([1]), 0, ValueError, "`max_length` is 0, must be at least 1"),
        (np.array([[1]]), 8, ValueError, r"`lengths` has shape \(1, 1\), must have one dimension"),
        (np.array([1.0]), 8, TypeError, "`lengths` is an array of float64, must be a NumPy array of integers"),
        ([1, 2.5], 8, TypeError, "`lengths` holds an element of type float, must hold integers"),
    ],
)
def test_wrong_inputs(lengths: Any, max_length: int, error: type[Exception], message: str) -> None:
    """A wrong input is named with its index and value."""
    with pytest.raises(error, match=message):
        rlkernels.pack_sequences(lengths, max_length)
