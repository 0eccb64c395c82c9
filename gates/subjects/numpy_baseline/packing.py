"""The NumPy baseline's packing: first-fit- and best-fit-decreasing bins, wrapped bins, and their efficiency."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


def pack_sequences(
    lengths: Array | Sequence[int],
    max_length: int,
    *,
    strategy: str = "first-fit-decreasing",
    over_long: str = "error",
) -> tuple[Any, ...]:
    """Bins as (indices, offsets, efficiency); equal lengths and equally full bins keep their order.

    With over_long "split" the bins hold pieces, whose starts and sizes are returned too.
    """
    arguments.one_of("strategy", strategy, (*STRATEGIES, "wrapped"))
    arguments.one_of("over_long", over_long, ("split",) if strategy == "wrapped" else ("error", "truncate", "split"))
    if max_length < 1:
        raise ValueError(f"`max_length` is {max_length}, must be at least 1")
    if over_long == "split":
        cut = wrapped_pieces if strategy == "wrapped" else split_pieces
        owners, starts, sizes = cut(_lengths(lengths), max_length)
        if strategy == "wrapped":
            first = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // max_length, prepend=-1))
            order, offsets = np.arange(sizes.size), np.append(first, sizes.size)
        else:
            order, offsets, _ = pack_sequences(sizes, max_length, strategy=strategy)
        share = efficiency(_lengths(lengths), sizes, offsets.size - 1, max_length)
        return owners[order], offsets, share, starts[order], sizes[order]
    sizes = allowed_lengths(_lengths(lengths), max_length, over_long)
    order = np.argsort(-sizes, kind="stable")
    chosen = STRATEGIES[strategy](sizes[order].tolist(), max_length)
    bins = max(chosen, default=-1) + 1
    counts = np.bincount(np.array(chosen, np.int64), minlength=bins)[:bins]
    indices = order[np.argsort(chosen, kind="stable")].astype(np.int64)
    return indices, np.concatenate([[0], np.cumsum(counts)]), efficiency(_lengths(lengths), sizes, bins, max_length)


def allowed_lengths(sizes: Array, max_length: int, over_long: str) -> Array:
    """Return the packed lengths, truncated to the bin's with over_long "truncate"."""
    if over_long == "truncate":
        return np.minimum(sizes, max_length)
    if long := np.flatnonzero(sizes > max_length).tolist():
        raise ValueError(f"`lengths` is {sizes[long[0]]} at index {long[0]}, must be at most max_length {max_length}")
    return sizes


def split_pieces(lengths: Array, max_length: int) -> tuple[Array, Array, Array]:
    """Return sequence, start and size of each piece; all but the last of a sequence have `max_length` tokens."""
    counts = -(-lengths // max_length)
    owners = np.repeat(np.arange(lengths.size), counts)
    starts = (np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)) * max_length
    return owners, starts, np.minimum(lengths[owners] - starts, max_length)


def wrapped_pieces(lengths: Array, max_length: int) -> tuple[Array, Array, Array]:
    """Return sequence, start and size of the pieces of concatenated sequences between ends of sequences and bins."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if ends.size else 0
    cuts = np.unique(np.concatenate([[0], ends, np.arange(0, total, max_length)]))
    owners = np.searchsorted(ends, cuts[:-1], side="right")
    return owners, cuts[:-1] - (ends - lengths)[owners], np.diff(cuts)


def efficiency(lengths: Array, packed: Array, bins: int, max_length: int) -> float:
    """Return the kept tokens divided by the capacity of all bins, 1.0 without bins."""
    del lengths
    return int(packed.sum()) / (bins * max_length) if bins else 1.0


def _first_fit(sizes: list[int], max_length: int) -> list[int]:
    """Return for each length the first bin with room."""
    room = np.full(len(sizes) + 1, max_length, dtype=np.int64)  # one bin per sequence is always enough
    chosen = []
    used = 0
    for size in sizes:
        bin_ = int(np.argmax(room[: used + 1] >= size))  # the bin after the last one is empty, so one always fits
        used = max(used, bin_ + 1)
        room[bin_] -= size
        chosen.append(bin_)
    return chosen


def _best_fit(sizes: list[int], max_length: int) -> list[int]:
    """Return for each length the bin with the least sufficient room, the lowest of equals."""
    free: list[tuple[int, int]] = []  # (room, bin), sorted
    chosen = []
    for size in sizes:
        at = bisect_left(free, (size, -1))
        room, bin_ = free.pop(at) if at < len(free) else (max_length, len(free))
        insort(free, (room - size, bin_))
        chosen.append(bin_)
    return chosen


STRATEGIES = {"first-fit-decreasing": _first_fit, "best-fit-decreasing": _best_fit}


def _lengths(lengths: Array | Sequence[int]) -> Array:
    if np.ndim(lengths) != 1:
        raise ValueError(f"`lengths` has shape {np.shape(lengths)}, must be (N,)")
    return arguments.whole("lengths", lengths, 0, 2**62)
