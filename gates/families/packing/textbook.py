"""The textbook limit of the efficiency of a packing: one quotient of integers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gates.arithmetic.number import Number, number, widest


def pack_sequences(
    lengths: npt.ArrayLike, max_length: int, *, strategy: str, over_long: str
) -> Mapping[str, npt.NDArray[np.float64]]:
    """Bound the rounding of the efficiency.

    Integer tensors of torch and MLX divide to float32, Python's integers to float64. The bound uses the fewest possible
    bins, for which the quotient and its rounding are largest.

    Args:
        lengths: (N,) tokens of each sequence.
        max_length: tokens of a bin.
        strategy: not used.
        over_long: not used; truncation only lowers the quotient.

    Returns:
        "efficiency": (), float64.
    """
    del strategy, over_long
    tokens = int(np.sum(lengths))
    room = max(1, -(-tokens // max_length)) * max_length
    return {"efficiency": widest(_quotient(tokens, room, dtype) for dtype in ("float32", "float64"))}


def _quotient(tokens: int, room: int, dtype: str) -> Number:
    """Divide integers that may first be rounded to the dtype."""
    return number(tokens, dtype).plus_relative(1.0) / number(room, dtype).plus_relative(1.0)
