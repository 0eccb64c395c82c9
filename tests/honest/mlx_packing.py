"""Packing with the sort and the quotient of MLX.

gates check packing --subject tests/honest/mlx_packing.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}


def pack_sequences(*, lengths: Any, max_length: int, strategy: str, over_long: str) -> dict[str, Any]:
    """Fill the bins with the longest first; pieces are not cut here."""
    given = mx.array(lengths)
    if over_long == "split":
        raise NotImplementedError("split")
    if over_long == "error" and given.size and mx.max(given).item() > max_length:
        raise ValueError("lengths: a sequence is longer than a bin")
    sizes = mx.minimum(given, max_length)
    held: list[list[int]] = []
    room: list[int] = []
    for index in mx.argsort(-sizes).tolist():
        size = sizes[index].item()
        fits = [number for number, left in enumerate(room) if left >= size]
        if strategy.startswith("best"):
            fits.sort(key=room.__getitem__)
        if not fits:
            held.append([])
            room.append(max_length)
            fits = [len(held) - 1]
        held[fits[0]].append(index)
        room[fits[0]] -= size
    ends = np.cumsum([0, *(len(one) for one in held)])
    share = (mx.sum(sizes) / (len(held) * max_length)).item() if held else 1.0
    return {
        "indices": np.array([index for one in held for index in one], np.int64),
        "offsets": ends,
        "efficiency": share,
    }


OPS = {"pack_sequences": pack_sequences}
