"""`rlkernels.pack_sequences`: by hand, its invariants and its errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlkernels


def bins(lengths: list[int], max_length: int) -> list[list[int]]:
    """The packing as lists of original indices."""
    indices, offsets, _ = rlkernels.pack_sequences(np.array(lengths, np.int64), max_length)
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
        """The bins are those found by hand."""
        assert bins(lengths, max_length) == want


@given(lengths=st.lists(st.integers(0, 50), max_size=200), max_length=st.integers(50, 120))
def test_every_sequence_once_and_no_bin_too_full(lengths: list[int], max_length: int) -> None:
    """A permutation; no bin over its room; at most one bin not more than half full."""
    packed = bins(lengths, max_length)
    fill = [sum(lengths[i] for i in one) for one in packed]
    assert sorted(i for one in packed for i in one) == list(range(len(lengths)))
    assert all(f <= max_length for f in fill)
    assert sum(2 * f <= max_length for f in fill) <= 1


@pytest.mark.parametrize(
    ("lengths", "max_length", "error", "message"),
    [
        (np.array([1, 9]), 8, ValueError, r"`lengths\[1\]` is 9, must be between 0 and 8"),
        (np.array([-1]), 8, ValueError, r"`lengths\[0\]` is -1"),
        (np.array([1]), 0, ValueError, "`max_length` is 0, must be at least 1"),
        (np.array([[1]]), 8, ValueError, r"`lengths` has shape \(1, 1\), must have one dimension"),
        (np.array([1.0]), 8, TypeError, "`lengths` is an array of float64, must be a NumPy array of integers"),
        ([1, 2], 8, TypeError, "`lengths` is of type list"),
    ],
)
def test_wrong_inputs(lengths: Any, max_length: int, error: type[Exception], message: str) -> None:
    """A wrong input is named with its index and value."""
    with pytest.raises(error, match=message):
        rlkernels.pack_sequences(lengths, max_length)
