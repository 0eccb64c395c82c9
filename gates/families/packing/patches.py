"""Mutations of packing; loaded in workers only."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from gates.families.patching import Fn, mutation
from gates.subjects.numpy_baseline import packing


@mutation
def overflowing_bins(original: Fn, lengths: Any, max_length: int, **rest: Any) -> Any:
    """Allow one token too many in a bin."""
    return original(np.maximum(lengths - 1, 0), max_length, **rest)


@mutation
def lose_the_last(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Drop the last sequence of the last bin."""
    indices, offsets, efficiency = original(*arguments, **rest)
    return indices[:-1], np.minimum(offsets, indices.size - 1), efficiency


def unstable_ties(original: Fn) -> Fn:
    """Order sequences of equal length differently in every call."""
    calls = count(1)

    def mistaken(lengths: Any, max_length: int, **rest: Any) -> Any:
        shift = next(calls) * 7 % max(1, len(lengths))
        indices, offsets, efficiency = original(np.roll(lengths, shift), max_length, **rest)
        return (indices - shift) % len(lengths), offsets, efficiency

    return mistaken


@mutation
def last_of_ties_first(original: Fn, lengths: Any, max_length: int, **rest: Any) -> Any:
    """Pack the sequences in the reverse order."""
    indices, *others = original(np.asarray(lengths)[::-1], max_length, **rest)
    return (len(lengths) - 1 - indices, *others)


@mutation
def first_fit_always(original: Fn, *arguments: Any, **rest: Any) -> Any:
    """Ignore the strategy."""
    return original(*arguments, **{**rest, "strategy": "first-fit-decreasing"})


@mutation
def emptiest_bin(original: Fn, lengths: Any, max_length: int, *, strategy: str, over_long: str) -> Any:
    """Put each sequence into the bin with the most room instead of the best fit."""
    if strategy != "best-fit-decreasing":
        return original(lengths, max_length, strategy=strategy, over_long=over_long)
    sizes = np.minimum(lengths, max_length)
    bins: list[list[int]] = []
    fills: list[int] = []
    for index in np.argsort(-sizes, kind="stable").tolist():
        at = int(np.argmin(fills)) if fills else 0
        if not fills or fills[at] + sizes[index] > max_length:
            at = len(bins)
            bins.append([])
            fills.append(0)
        bins[at].append(index)
        fills[at] += int(sizes[index])
    indices = np.array([index for content in bins for index in content], np.int64)
    return indices, np.cumsum([0, *map(len, bins)]), sum(fills) / max(1, len(bins) * max_length)


@mutation
def truncate_always(original: Fn, sizes: Any, max_length: Any, over_long: Any) -> Any:
    """Truncate long sequences instead of raising an error."""
    return original(sizes, max_length, over_long and "truncate")


@mutation
def before_truncation(original: Fn, given: Any, packed: Any, *rest: Any) -> Any:
    """Count truncated tokens too."""
    return original(given, given if packed.size else packed, *rest)


@mutation
def per_sequence(original: Fn, given: Any, packed: Any, bins: Any, max_length: Any) -> Any:
    """Divide by the size of one bin per sequence."""
    return original(given, packed, packed.size or bins, max_length)


@mutation
def whole_bins_only(original: Fn, lengths: Any, max_length: int) -> Any:
    """Drop the tokens after the last full piece of a sequence longer than a bin."""
    return original(np.where(lengths > max_length, lengths // max_length * max_length, lengths), max_length)


@mutation
def from_the_start(original: Fn, lengths: Any, max_length: int) -> Any:
    """Fill every piece with the first tokens of its sequence."""
    owners, starts, sizes = original(lengths, max_length)
    return owners, np.zeros_like(starts), sizes


@mutation
def full_bins_only(original: Fn, lengths: Any, max_length: int) -> Any:
    """Drop the tokens after the last full bin."""
    owners, starts, sizes = original(lengths, max_length)
    stays = np.cumsum(sizes) <= int(np.sum(lengths)) // max_length * max_length
    return owners[stays], starts[stays], sizes[stays]


@mutation
def sequences_apart(_original: Fn, lengths: Any, max_length: int) -> Any:
    """Cut each sequence separately."""
    return packing.split_pieces(lengths, max_length)
