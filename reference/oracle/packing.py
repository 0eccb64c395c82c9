"""Packing sequences into bins of bounded length: what is valid, one simple packing, and how good one can be."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.oracle.inputs import integers


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
    sizes = _lengths(lengths, max_length)
    problems: list[str] = []
    seen: dict[int, int] = {}
    for number, content in enumerate(bins):
        indices = [int(index) for index in np.asarray(content).reshape(-1)]
        if not indices:
            problems.append(f"bin {number} is empty")
        total = 0
        for index in indices:
            if not 0 <= index < len(sizes):
                problems.append(f"bin {number} holds sequence {index}, must be in [0, {len(sizes)})")
                continue
            total += sizes[index]
            if index in seen:
                problems.append(f"sequence {index} is in bin {seen[index]} and again in bin {number}")
            seen[index] = number
        if total > max_length:
            problems.append(f"bin {number} holds {total} tokens, must be at most {max_length}")
    problems.extend(f"sequence {index} is in no bin" for index in range(len(sizes)) if index not in seen)
    return problems


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
    sizes = _lengths(lengths, max_length)
    bins: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        for content in bins:
            if sum(sizes[other] for other in content) + sizes[index] <= max_length:
                content.append(index)
                break
        else:
            bins.append([index])
    return bins


def lower_bound(lengths: npt.ArrayLike, max_length: int) -> int:
    """No packing uses fewer bins than the total length over the bin's length, rounded up.

    Args:
        lengths: (N,) tokens per sequence, in [0, max_length].
        max_length: tokens per bin, at least 1.

    Returns:
        ceil(sum / max_length) bins.

    Raises:
        ValueError: a negative or over-long sequence.

    Source: semantics.md, "Packing".
    """
    return -(-sum(_lengths(lengths, max_length)) // max_length)


def _lengths(lengths: npt.ArrayLike, max_length: int) -> list[int]:
    if max_length < 1:
        raise ValueError(f"`max_length` is {max_length}, must be at least 1")
    array = integers("lengths", lengths, least=0, below=max_length + 1)
    if array.ndim != 1:
        raise ValueError(f"`lengths` has shape {array.shape}, must be (N,)")
    return [int(length) for length in array]
