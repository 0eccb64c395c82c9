"""Valid calls of sequence packing."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.valid import Generator


def valid(rng: np.random.Generator, count: int, sizes: str, room: int, strategy: str, over_long: str) -> dict[str, Any]:
    """Return a call of `pack_sequences`; wrapped sequences are split, and what is longer than a bin is cut by name."""
    equal = {"equal": max(1, room // 2), "full": room, "empty": 0, "ones": 1}
    drawn = rng.integers(0, (3 * room if sizes == "longer" else room) + 1, count)
    if sizes in equal:
        drawn[:] = equal[sizes]
    if sizes == "longer" and over_long == "error":
        over_long = "truncate"
    over_long = "split" if strategy == "wrapped" else over_long
    return {"lengths": drawn.astype(np.int64), "max_length": room, "strategy": strategy, "over_long": over_long}


GENERATORS = (
    Generator(
        "pack_sequences",
        {
            "count": (8, 0, 1, 2, 15),
            "sizes": ("any", "equal", "full", "empty", "ones", "longer"),
            "room": (7, 1, 2, 8),
            "strategy": ("first-fit-decreasing", "best-fit-decreasing", "wrapped"),
            "over_long": ("error", "truncate", "split"),
        },
        valid,
    ),
)
