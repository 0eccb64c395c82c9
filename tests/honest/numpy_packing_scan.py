"""First-fit and best-fit with bins as objects and an array of room, pieces cut beforehand, written from the textbook.

gates check packing --subject tests/honest/numpy_packing_scan.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


@dataclass
class Bin:
    """A row of the packed batch."""

    room: int
    members: list[int] = field(default_factory=list)

    def put(self, index: int, size: int) -> None:
        """Place a sequence."""
        self.members.append(index)
        self.room -= size


def packed(sizes: list[int], capacity: int, strategy: str) -> list[Bin]:
    """Place the longest sequence first."""
    bins: list[Bin] = []
    for index in np.argsort(-np.asarray(sizes, dtype=np.int64), kind="stable").tolist():
        fitting = (row for row in bins if row.room >= sizes[index])
        if strategy == "first-fit-decreasing":
            target = next(fitting, None)
        else:
            target = min(fitting, key=lambda row: row.room, default=None)
        if target is None:
            target = Bin(capacity)
            bins.append(target)
        target.put(index, sizes[index])
    return bins


def pack_sequences(*, lengths: Any, max_length: int, strategy: str, over_long: str) -> dict[str, Any]:
    """Pack whole sequences, which are cut off at a bin's size if that is asked for."""
    sizes = [int(n) for n in lengths]
    if over_long == "error" and any(n > max_length for n in sizes):
        raise ValueError(f"lengths: a sequence is longer than {max_length}")
    bins = packed([min(n, max_length) for n in sizes], max_length, strategy)
    kept = sum(max_length - row.room for row in bins)
    return {
        "indices": np.concatenate([np.array(row.members, np.int64) for row in bins] or [np.zeros(0, np.int64)]),
        "offsets": np.cumsum([0, *(len(row.members) for row in bins)]),
        "efficiency": kept / (max_length * len(bins)) if bins else 1.0,
    }


OPS = {"pack_sequences": pack_sequences}
CONVENTIONS = {
    "pack_sequences": {
        "over_long": ("error", "truncate"),
        "strategy": ("first-fit-decreasing", "best-fit-decreasing"),
    }
}
