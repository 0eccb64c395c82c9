"""The NumPy baseline's packing against hand-worked bins, without the oracle."""

import itertools
from typing import Any

import numpy as np
import pytest

from gates.subjects.numpy_baseline import packing as subject


class TestPackSequences:
    """First-fit-decreasing bins."""

    @pytest.mark.parametrize(
        ("lengths", "bins"),
        [
            pytest.param([4, 8, 1, 4, 2, 1], [[1, 4], [0, 3, 2, 5]], id="johnson"),
            pytest.param([5, 5, 5, 5], [[0, 1], [2, 3]], id="ties-by-index"),
            pytest.param([0, 10, 0], [[1, 0, 2]], id="zero-fits-anywhere"),
            pytest.param([6, 7, 3, 4], [[1, 2], [0, 3]], id="exact-fit"),
            pytest.param([], [], id="none"),
        ],
    )
    def test_hand_worked_bins(self, lengths: list[int], bins: list[list[int]]) -> None:
        """Longest first, each into the first bin of ten with room."""
        indices, offsets, efficiency = subject.pack_sequences(np.array(lengths, np.int64), 10)
        assert [indices[a:b].tolist() for a, b in itertools.pairwise(offsets)] == bins
        assert (indices.dtype, offsets.dtype) == (np.int64, np.int64)
        assert offsets[0] == 0
        assert efficiency == (sum(lengths) / (10 * len(bins)) if bins else 1.0)

    def test_random_bins_hold_every_sequence_once(self) -> None:
        """No sequence is lost or repeated, no bin overflows, and no bin could have taken the next one's first."""
        lengths = np.random.default_rng(0).integers(0, 100, 500)
        indices, offsets, efficiency = subject.pack_sequences(lengths, 100)
        assert sorted(indices.tolist()) == list(range(500))
        assert efficiency == lengths.sum() / (100 * (offsets.size - 1))
        bins = [lengths[indices[a:b]] for a, b in itertools.pairwise(offsets)]
        assert max(held.sum() for held in bins) <= 100
        for k, later in enumerate(bins):
            assert all(held[held >= later[0]].sum() + later[0] > 100 for held in bins[:k])

    @pytest.mark.parametrize(
        ("lengths", "max_length", "message"),
        [
            ([1, 11], 10, "`lengths` is 11 at index 1, must be at most max_length 10"),
            ([1, -2], 10, "`lengths` is -2 at index 1"),
            ([1], 0, "`max_length` is 0"),
        ],
        ids=["over-long", "negative", "no-room"],
    )
    def test_errors_name_index_and_value(self, lengths: list[int], max_length: int, message: str) -> None:
        """A sequence that no bin can hold is named by its index and length."""
        with pytest.raises(ValueError, match=message):
            subject.pack_sequences(np.array(lengths), max_length)


class TestBestFit:
    """Best-fit-decreasing bins."""

    @pytest.mark.parametrize(
        ("lengths", "bins"),
        [
            # [10] | [8 7]: the 1 goes to the fuller second bin
            pytest.param([10, 8, 7, 1], [[0], [1, 2, 3]], id="fullest"),
            # [12] [11]: 4 fits both and fills the 12; 3 then goes to the 11
            pytest.param([12, 11, 4, 3], [[0, 2], [1, 3]], id="least-room"),
            pytest.param([9, 9, 7], [[0, 2], [1]], id="first-of-equals"),
            pytest.param([], [], id="none"),
        ],
    )
    def test_hand_worked_bins(self, lengths: list[int], bins: list[list[int]]) -> None:
        """Bins of 16."""
        indices, offsets, _ = subject.pack_sequences(np.array(lengths, np.int64), 16, strategy="best-fit-decreasing")
        assert [indices[a:b].tolist() for a, b in itertools.pairwise(offsets)] == bins


class TestOverLong:
    """Sequences longer than a bin."""

    def test_truncation_fills_a_bin(self) -> None:
        """25 tokens count as ten, and so does their share of the efficiency."""
        indices, offsets, efficiency = subject.pack_sequences([25, 4], 10, over_long="truncate")
        assert (indices.tolist(), offsets.tolist(), efficiency) == ([0, 1], [0, 1, 2], 0.7)

    @pytest.mark.parametrize(
        ("choice", "message"),
        [({"over_long": "drop"}, "`over_long` is 'drop'"), ({"strategy": "next-fit"}, "`strategy` is 'next-fit'")],
        ids=["over-long", "strategy"],
    )
    def test_errors_name_the_argument(self, choice: dict[str, Any], message: str) -> None:
        """Unknown conventions are refused."""
        with pytest.raises(ValueError, match=message):
            subject.pack_sequences([1], 10, **choice)
