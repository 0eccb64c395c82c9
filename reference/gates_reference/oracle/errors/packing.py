"""Which packings are admissible: every sequence in exactly one bin, and no bin too full."""

from collections.abc import Sequence


def problems(lengths: Sequence[int], max_length: int, bins: Sequence[Sequence[int]]) -> list[str]:
    """One sentence per problem; empty for a valid packing.

    Args:
        lengths: tokens per sequence.
        max_length: tokens per bin.
        bins: for each bin the indices of its sequences.

    Source: the bin packing problem, Johnson (1973).
    """
    found: list[str] = []
    seen: dict[int, int] = {}
    for number, indices in enumerate(bins):
        if not indices:
            found.append(f"bin {number} is empty")
        total = 0
        for index in indices:
            if not 0 <= index < len(lengths):
                found.append(f"bin {number} holds sequence {index}, must be in [0, {len(lengths)})")
                continue
            total += lengths[index]
            if index in seen:
                found.append(f"sequence {index} is in bin {seen[index]} and again in bin {number}")
            seen[index] = number
        if total > max_length:
            found.append(f"bin {number} holds {total} tokens, must be at most {max_length}")
    return found + [f"sequence {index} is in no bin" for index in range(len(lengths)) if index not in seen]
