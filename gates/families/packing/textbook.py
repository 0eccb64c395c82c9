"""The efficiency of a packing, as libraries compute it: one quotient of whole numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gates.arithmetic.number import Number, number, widest


def pack_sequences(
    lengths: npt.ArrayLike, max_length: int, *, strategy: str, over_long: str
) -> Mapping[str, npt.NDArray[np.float64]]:
    """Bound the rounding of the efficiency.

    Whole tensors of torch and MLX divide to float32, Python's numbers to float64. No packing needs fewer bins than the
    tokens fill, so the quotient over that many is the largest, and so is its rounding.

    Args:
        lengths: (N,) tokens of each sequence.
        max_length: tokens of a bin.
        strategy: any; the bound is the same.
        over_long: any; what truncation cuts makes the quotient smaller.

    Returns:
        "efficiency": (), float64.
    """
    del strategy, over_long
    tokens = int(np.sum(lengths))
    room = max(1, -(-tokens // max_length)) * max_length
    return {"efficiency": widest(_quotient(tokens, room, dtype) for dtype in ("float32", "float64"))}


def _quotient(tokens: int, room: int, dtype: str) -> Number:
    """Divide, where either whole number may have to be rounded to the dtype first."""
    return number(tokens, dtype).plus_relative(1.0) / number(room, dtype).plus_relative(1.0)
