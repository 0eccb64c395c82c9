"""Packing sequences into bins of bounded length: what is valid, one simple packing, and how good one can be."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import packing as definition
from gates_reference.oracle.errors import packing as errors
from gates_reference.oracle.inputs import Ints, choice, integers

STRATEGIES = ("first-fit-decreasing", "best-fit-decreasing")
WRAPPED = "wrapped"
OVER_LONG = ("error", "truncate")
SPLIT = "split"


def check_packing(lengths: npt.ArrayLike, max_length: int, bins: Sequence[npt.ArrayLike]) -> list[str]:
    """A packing is valid when every sequence lies in exactly one bin and no bin exceeds `max_length`.

    Args:
        lengths: (N,) tokens per sequence, at least 0.
        max_length: tokens per bin, at least 1.
        bins: for each bin the indices of its sequences.

    Returns:
        One sentence per problem; empty for a valid packing.

    Raises:
        ValueError: lengths that cannot be packed at all.

    Source: the bin packing problem, Johnson (1973).
    """
    return errors.problems(_lengths(lengths, max_length), max_length, [_indices(content) for content in bins])


def first_fit_decreasing(lengths: npt.ArrayLike, max_length: int) -> list[list[int]]:
    """Longest first, and among equals the lowest index first, each sequence goes into the first bin it fits in.

    Args:
        lengths: (N,) tokens per sequence, in [0, max_length].
        max_length: tokens per bin, at least 1.

    Returns:
        For each bin, in the order of opening, the indices in the order of placement.

    Raises:
        ValueError: a negative or over-long sequence, named by its index and length.

    Source: Johnson (1973), "Near-optimal bin packing algorithms".
    """
    return definition.decreasing(_lengths(lengths, max_length), max_length, definition.first_fit)


def best_fit_decreasing(lengths: npt.ArrayLike, max_length: int) -> list[list[int]]:
    """Longest first, lowest index first among equals, each sequence goes into the fullest bin it still fits in.

    Of bins that are equally full the one that was opened first takes it.

    Args:
        lengths: (N,) tokens per sequence, in [0, max_length].
        max_length: tokens per bin, at least 1.

    Returns:
        For each bin, in the order of opening, the indices in the order of placement.

    Raises:
        ValueError: a negative or over-long sequence, named by its index and length.

    Source: Johnson (1973), "Near-optimal bin packing algorithms".
    """
    return definition.decreasing(_lengths(lengths, max_length), max_length, definition.best_fit)


def pack_sequences(
    lengths: npt.ArrayLike, max_length: int, *, strategy: str, over_long: str
) -> tuple[Ints, Ints, float] | tuple[Ints, Ints, float, Ints, Ints]:
    """Bin b holds the sequences indices[offsets[b]:offsets[b + 1]], and the bins are filled to the share `efficiency`.

    With "split" it holds pieces of them: tokens starts[j] to starts[j] + sizes[j] of sequence indices[j]. A sequence
    without tokens has no piece.

    Args:
        lengths: (N,) tokens per sequence, at least 0.
        max_length: tokens per bin, at least 1.
        strategy: "first-fit-decreasing" or "best-fit-decreasing"; with "split" also "wrapped": all sequences one after
            the other, cut where bins end.
        over_long: what becomes of a sequence longer than a bin: "error"; "truncate", where it keeps its first
            `max_length` tokens and is packed as that long; or "split", where it is cut after each `max_length` tokens
            and every piece is packed as a sequence.

    Returns:
        indices (N,), offsets (bins + 1,), and tokens kept / (bins max_length), which is 1.0 where there are no bins;
        with "split" also starts and sizes, and these and indices have one element for each piece.

    Raises:
        ValueError: an unknown convention, a negative length, an over-long sequence with "error", "wrapped" without
            "split".

    Source: docs/definitions.md, "Packing".
    """
    choice("strategy", strategy, (*STRATEGIES, WRAPPED))
    choice("over_long", over_long, (SPLIT,) if strategy == WRAPPED else (*OVER_LONG, SPLIT))
    if over_long == SPLIT:
        return _pack_pieces(lengths, max_length, strategy)
    if over_long == "truncate":
        lengths = np.minimum(integers("lengths", lengths, least=0), max_length)
    pack = first_fit_decreasing if strategy == "first-fit-decreasing" else best_fit_decreasing
    bins = pack(lengths, max_length)
    indices = np.array([index for content in bins for index in content], dtype=np.int64)
    offsets = np.cumsum([0, *(len(content) for content in bins)], dtype=np.int64)
    kept = sum(_lengths(lengths, max_length))
    return indices, offsets, kept / (len(bins) * max_length) if bins else 1.0


def _pack_pieces(lengths: npt.ArrayLike, max_length: int, strategy: str) -> tuple[Ints, Ints, float, Ints, Ints]:
    _lengths([], max_length)  # raises on a `max_length` without room
    given = [int(length) for length in integers("lengths", lengths, least=0)]
    if strategy == WRAPPED:
        bins = definition.wrapped(given, max_length)
    else:
        pieces = definition.split(given, max_length)
        choose = definition.first_fit if strategy == "first-fit-decreasing" else definition.best_fit
        packed = definition.decreasing([size for *_, size in pieces], max_length, choose)
        bins = [[pieces[number] for number in content] for content in packed]
    held = np.array([piece for content in bins for piece in content], dtype=np.int64).reshape(-1, 3)
    offsets = np.cumsum([0, *(len(content) for content in bins)], dtype=np.int64)
    efficiency = sum(given) / (len(bins) * max_length) if bins else 1.0
    return held[:, 0], offsets, efficiency, held[:, 1], held[:, 2]


def lower_bound(lengths: npt.ArrayLike, max_length: int) -> int:
    """No packing uses fewer bins than the total length over the bin's length, rounded up.

    Args:
        lengths: (N,) tokens per sequence, in [0, max_length].
        max_length: tokens per bin, at least 1.

    Returns:
        ceil(sum / max_length) bins.

    Raises:
        ValueError: a negative or over-long sequence.

    Source: docs/definitions.md, "Packing".
    """
    return definition.lower_bound(_lengths(lengths, max_length), max_length)


def _lengths(lengths: npt.ArrayLike, max_length: int) -> list[int]:
    if max_length < 1:
        raise ValueError(f"`max_length` is {max_length}, must be at least 1")
    array = integers("lengths", lengths, least=0, below=max_length + 1)
    if array.ndim != 1:
        raise ValueError(f"`lengths` has shape {array.shape}, must be (N,)")
    return [int(length) for length in array]


def _indices(content: npt.ArrayLike) -> list[int]:
    return [int(index) for index in np.asarray(content).reshape(-1)]
