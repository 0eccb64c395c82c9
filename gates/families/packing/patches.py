"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

Fn = Callable[..., Any]


def overflowing_bins(original: Fn) -> Fn:
    """Allow one token too many in a bin."""

    def mistaken(lengths: Any, max_length: int, **rest: Any) -> Any:
        return original(np.maximum(lengths - 1, 0), max_length, **rest)

    return mistaken


def lose_the_last(original: Fn) -> Fn:
    """Forget the last sequence of the last bin."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        indices, offsets, efficiency = original(*arguments, **rest)
        return indices[:-1], np.minimum(offsets, indices.size - 1), efficiency

    return mistaken


def unstable_ties(original: Fn) -> Fn:
    """Order sequences of equal length differently in every call."""
    calls = count(1)

    def mistaken(lengths: Any, max_length: int, **rest: Any) -> Any:
        shift = next(calls) * 7 % max(1, len(lengths))
        indices, offsets, efficiency = original(np.roll(lengths, shift), max_length, **rest)
        return (indices - shift) % len(lengths), offsets, efficiency

    return mistaken


def first_fit_always(original: Fn) -> Fn:
    """Ignore the strategy."""

    def mistaken(*arguments: Any, **rest: Any) -> Any:
        return original(*arguments, **{**rest, "strategy": "first-fit-decreasing"})

    return mistaken


def emptiest_bin(original: Fn) -> Fn:
    """Put each sequence into the bin with the most room, where best fit was asked for."""

    def mistaken(lengths: Any, max_length: int, *, strategy: str, over_long: str) -> Any:
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

    return mistaken


def truncate_always(original: Fn) -> Fn:
    """Cut what is too long although an error was asked for."""
    return lambda sizes, max_length, over_long: original(sizes, max_length, over_long and "truncate")


def before_truncation(original: Fn) -> Fn:
    """Count the tokens that were cut off."""
    return lambda given, packed, *rest: original(given, given if packed.size else packed, *rest)


def per_sequence(original: Fn) -> Fn:
    """Divide by the room of as many bins as there are sequences."""
    return lambda given, packed, bins, max_length: original(given, packed, packed.size or bins, max_length)
