"""`rlkernels.philox4x32_10`, `uniforms` and `xtc_coins`: known answers, the oracle's numbers, broadcasting and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlkernels
from gates_reference.oracle import philox

WORD = st.integers(0, 2**32 - 1)
ONES = 2**32 - 1


class TestWords:
    """Philox itself."""

    @pytest.mark.parametrize(
        ("counter", "key", "want"),
        [
            # Random123, examples/kat_vectors, "philox4x32 10"
            ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
            ([ONES] * 4, [ONES] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
            (
                [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
                [0xA4093822, 0x299F31D0],
                [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
            ),
        ],
    )
    @pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint64])
    def test_known_answers(self, counter: list[int], key: list[int], want: list[int], dtype: Any) -> None:
        """The authors' vectors, from words of any integer type."""
        got = rlkernels.philox4x32_10(np.array(counter, dtype), np.array(key, dtype))
        assert got.dtype == np.uint32
        assert got.tolist() == want

    @pytest.mark.parametrize(
        ("counters", "keys"),
        [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 5), ()), ((), (2,)), ((3, 1), (1, 4)), ((0,), (1,))],
    )
    def test_leading_axes_broadcast(self, counters: tuple[int, ...], keys: tuple[int, ...]) -> None:
        """As in the oracle."""
        generator = np.random.default_rng(1)
        counter = generator.integers(0, 2**32, (*counters, 4), np.uint32)
        key = generator.integers(0, 2**32, (*keys, 2), np.uint32)
        want = philox.philox4x32_10(counter, key)
        got = rlkernels.philox4x32_10(counter, key)
        assert got.shape == want.shape == (*np.broadcast_shapes(counters, keys), 4)
        assert np.array_equal(got, want)

    @pytest.mark.parametrize(
        ("counter", "key", "message"),
        [
            (np.zeros(3, np.uint32), np.zeros(2, np.uint32), r"`counter` has shape \(3,\), must be \(..., 4\)"),
            (np.zeros(4, np.uint32), np.array(0), r"`key` has shape \(\), must be \(..., 2\)"),
            (np.zeros((3, 4), int), np.zeros((2, 2), int), r"`key` has shape \(2,\), must broadcast with \(3,\)"),
            (np.array([0, -1, 0, 0]), np.zeros(2, int), "`counter` holds -1, must be at least 0 and below 2"),
            (np.zeros(4, int), np.array([2**32, 0]), "`key` holds 4294967296, must be at least 0 and below 2"),
        ],
    )
    def test_errors(self, counter: Any, key: Any, message: str) -> None:
        """A wrong shape or word is named."""
        with pytest.raises(ValueError, match=message):
            rlkernels.philox4x32_10(counter, key)


@pytest.mark.parametrize(
    ("function", "oracle"),
    [
        pytest.param(rlkernels.uniforms, philox.uniforms, id="uniforms"),
        pytest.param(rlkernels.xtc_coins, philox.xtc_coins, id="xtc_coins"),
    ],
)
class TestNumbers:
    """One uniform and one coin for every token."""

    @given(seed=st.integers(0, 2**64 - 1), words=st.tuples(WORD, WORD, WORD, WORD))
    def test_one_draw(self, function: Any, oracle: Any, seed: int, words: tuple[int, ...]) -> None:
        """The oracle's number, as a NumPy scalar."""
        got = function(seed, *words)
        assert type(got) is np.float64
        assert got == oracle(seed, *words)
        assert got == function(seed, *map(np.uint32, words)) == function(seed, *map(np.array, words))

    @pytest.mark.parametrize(
        "shapes",
        [
            ((), (), (), (7,)),
            ((4, 1, 1), (3, 1), (), (5,)),
            ((2, 3),) * 4,
            ((1,), (2, 1), (1, 1), (3,)),
            ((0,), (), (1,), ()),
        ],
    )
    def test_broadcasting(self, function: Any, oracle: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Each number depends on its own four words only."""
        generator = np.random.default_rng(2)
        words = [generator.integers(0, 2**32, shape) for shape in shapes]
        got = function(5, *words)
        assert got.shape == np.broadcast_shapes(*shapes)
        assert np.array_equal(got, oracle(5, *words))

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"seed": -1}, ValueError, r"`seed` is out of range, must be in \[0, 2\*\*64\)"),
            ({"seed": 2**64}, ValueError, "`seed` is out of range"),
            ({"seed": 1.5}, TypeError, "`seed` is of type"),
            ({"token": -1}, ValueError, r"`token\[0\]` is -1, must be in \[0, 2\*\*32\)"),
            ({"round_": 2**32}, ValueError, r"`round_\[0\]` is 4294967296"),
            ({"prompt": np.array([0, 2**40])}, ValueError, r"`prompt\[1\]` is 1099511627776"),
            ({"sample": 2**70}, ValueError, "`sample` is 1180591620717411303424, must fit into 64 bits"),
            ({"sample": 0.0}, TypeError, "`sample` is of type float"),
            (
                {"sample": np.zeros(2, int), "token": np.zeros(3, int)},
                ValueError,
                r"`token` has shape \(3,\), must broad",
            ),
        ],
    )
    def test_errors(self, function: Any, oracle: Any, change: Any, error: type[Exception], message: str) -> None:
        """A number outside its range is named."""
        del oracle
        with pytest.raises(error, match=message):
            function(**{"seed": 0, "round_": 0, "prompt": 0, "sample": 0, "token": 0} | change)
