"""Packing sequences into bins of bounded length. Johnson (1973), "Near-optimal bin packing algorithms"."""

from collections.abc import Callable, Sequence

Choice = Callable[
    [list[int], list[int]], int
]  # of the bins in which a sequence fits, and all fills: the one that takes it


def first_fit(fitting: list[int], _: list[int]) -> int:
    """The first bin that it fits in."""
    return fitting[0]


def best_fit(fitting: list[int], fills: list[int]) -> int:
    """The fullest bin that it fits in, the first of equally full ones."""
    return min(fitting, key=lambda number: (-fills[number], number))


def decreasing(lengths: Sequence[int], max_length: int, choose: Choice) -> list[list[int]]:
    """Longest first, lowest index first among equals, each sequence goes into the chosen bin, or into a new one."""
    bins: list[list[int]] = []
    fills: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        fitting = [number for number, fill in enumerate(fills) if fill + lengths[index] <= max_length]
        if not fitting:
            bins.append([])
            fills.append(0)
        number = choose(fitting, fills) if fitting else len(bins) - 1
        bins[number].append(index)
        fills[number] += lengths[index]
    return bins


def lower_bound(lengths: Sequence[int], max_length: int) -> int:
    """The bins that no packing can do without: the total length over the bin's length, rounded up."""
    return -(-sum(lengths) // max_length)
