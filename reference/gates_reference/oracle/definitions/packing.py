"""Packing sequences into bins of bounded length. Johnson (1973), "Near-optimal bin packing algorithms"."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

Piece = tuple[int, int, int]  # a sequence, its first token in the piece, and how many
Choice = Callable[[Iterator[int], list[int]], int | None]  # of the bins in which a sequence fits, and all fills


def first_fit(fitting: Iterator[int], _: list[int]) -> int | None:
    """The first bin that it fits in."""
    return next(fitting, None)


def best_fit(fitting: Iterator[int], fills: list[int]) -> int | None:
    """The fullest bin that it fits in, the first of equally full ones."""
    return min(fitting, key=lambda number: (-fills[number], number), default=None)


def decreasing(lengths: Sequence[int], max_length: int, choose: Choice) -> list[list[int]]:
    """Longest first, lowest index first among equals, each sequence goes into the chosen bin, or into a new one."""
    bins: list[list[int]] = []
    fills: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        room = max_length - lengths[index]
        number = choose((number for number, fill in enumerate(fills) if fill <= room), fills)
        if number is None:
            number = len(bins)
            bins.append([])
            fills.append(0)
        bins[number].append(index)
        fills[number] += lengths[index]
    return bins


def split(lengths: Sequence[int], max_length: int) -> list[Piece]:
    """Every sequence cut after each `max_length` tokens. TRL 1.10, trl/data_utils.py, `_pack_bfd` with "split"."""
    return [
        (index, start, min(max_length, length - start))
        for index, length in enumerate(lengths)
        for start in range(0, length, max_length)
    ]


def wrapped(lengths: Sequence[int], max_length: int) -> list[list[Piece]]:
    """All tokens one after the other, cut after each `max_length`. TRL 1.10, trl/data_utils.py, `_pack_wrapped`."""
    tokens = [(index, token) for index, length in enumerate(lengths) for token in range(length)]
    bins = [tokens[start : start + max_length] for start in range(0, len(tokens), max_length)]
    return [[_piece(list(held)) for _, held in groupby(content, key=lambda token: token[0])] for content in bins]


def _piece(tokens: list[tuple[int, int]]) -> Piece:
    return (*tokens[0], len(tokens))


def lower_bound(lengths: Sequence[int], max_length: int) -> int:
    """The bins that no packing can do without: the total length over the bin's length, rounded up."""
    return -(-sum(lengths) // max_length)
