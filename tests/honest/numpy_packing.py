"""Plain programs of packing: an unstable sort, lists of bins, TRL's pieces.

gates check packing --subject tests/honest/numpy_packing.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def _place(sizes: list[int], order: list[int], max_length: int, *, best: bool) -> list[list[int]]:
    bins: list[list[int]] = []
    room: list[int] = []
    for index in order:
        fits = [number for number, left in enumerate(room) if left >= sizes[index]]
        if not fits:
            bins.append([])
            room.append(max_length)
            fits = [len(bins) - 1]
        chosen = min(reversed(fits), key=room.__getitem__) if best else fits[0]  # of equally full bins the newest
        bins[chosen].append(index)
        room[chosen] -= sizes[index]
    return bins


def _answer(bins: list[list[int]], kept: int, max_length: int) -> dict[str, Any]:
    ends = np.cumsum([len(one) for one in bins], dtype=np.int64)
    return {
        "indices": np.array([index for one in bins for index in one], dtype=np.int64),
        "offsets": np.concatenate([np.zeros(1, np.int64), ends]),
        "efficiency": kept / (len(bins) * max_length) if bins else 1.0,
    }


def pack_sequences(*, lengths: Any, max_length: int, strategy: str, over_long: str) -> dict[str, Any]:
    """Fill the bins with the longest first."""
    lengths = np.asarray(lengths)
    if over_long == "split":
        return _pieces(lengths, max_length, strategy)
    if over_long == "error" and (lengths > max_length).any():
        raise ValueError("lengths: a sequence is longer than a bin")
    sizes = np.minimum(lengths, max_length)
    bins = _place(sizes.tolist(), np.argsort(sizes)[::-1].tolist(), max_length, best=strategy.startswith("best"))
    return _answer(bins, int(sizes.sum()), max_length)


def _pieces(lengths: Any, max_length: int, strategy: str) -> dict[str, Any]:
    if strategy == "wrapped":
        cut, bins = _wrapped(lengths.tolist(), max_length)
    else:
        cut = [
            (index, start, min(max_length, length - start))
            for index, length in enumerate(lengths.tolist())
            for start in range(0, length, max_length)
        ]
        sizes = np.array([size for _, _, size in cut], dtype=np.int64)
        order = np.argsort(sizes)[::-1].tolist()
        bins = _place(sizes.tolist(), order, max_length, best=strategy.startswith("best"))
    found = _answer(bins, int(lengths.sum()), max_length)
    table = np.array(cut, dtype=np.int64).reshape(-1, 3)[found["indices"]]
    return {**found, "indices": table[:, 0], "starts": table[:, 1], "sizes": table[:, 2]}


def _wrapped(lengths: list[int], max_length: int) -> tuple[list[tuple[int, int, int]], list[list[int]]]:
    cut: list[tuple[int, int, int]] = []
    bins: list[list[int]] = []
    room = 0
    for index, length in enumerate(lengths):
        start = 0
        while start < length:
            if room == 0:
                bins.append([])
                room = max_length
            size = min(room, length - start)
            bins[-1].append(len(cut))
            cut.append((index, start, size))
            start += size
            room -= size
    return cut, bins


OPS = {"pack_sequences": pack_sequences}
