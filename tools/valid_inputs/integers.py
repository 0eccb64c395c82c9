"""Inputs of the ops of whole numbers: packed sequences, and keyed random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from valid_inputs import Generator, Rng

COUNTS = {"none": 0, "one": 1, "two": 2, "as many as a bin holds": 8, "many": 15}


def packed(rng: Rng, count: str, sizes: str, bin_: str, strategy: str, over_long: str) -> dict[str, Any]:
    """Return a call of `pack_sequences`; wrapped sequences are split, and what is longer than a bin is cut by name."""
    number, room = COUNTS[count], int(bin_)
    drawn = rng.integers(0, room + 1, number)
    if sizes == "equal":
        drawn = np.full(number, max(1, room // 2))
    if sizes == "full":
        drawn = np.full(number, room)
    if sizes == "empty":
        drawn = np.zeros(number, np.int64)
    if sizes == "ones":
        drawn = np.ones(number, np.int64)
    if sizes == "longer":
        drawn = rng.integers(0, 3 * room + 1, number)
    if sizes == "longer" and over_long == "error":
        over_long = "truncate"
    if strategy == "wrapped":
        over_long = "split"
    return {"lengths": drawn.astype(np.int64), "max_length": room, "strategy": strategy, "over_long": over_long}


def _words(rng: Rng, shape: tuple[int, ...], kind: str) -> Any:
    limit = 1 << 32
    drawn = {
        "small": rng.integers(0, 8, shape),
        "large": rng.integers(limit - 8, limit, shape),
        "any": rng.integers(0, limit, shape),
    }
    return drawn[kind].astype(np.uint32)


def philox(rng: Rng, shape: str, counter: str, key: str) -> dict[str, Any]:
    """Return a call of `philox4x32_10`."""
    first, second = {"one": ((), ()), "rows": ((5,), (5,)), "one key": ((3, 2), ()), "one counter": ((), (4,))}[shape]
    return {"counter": _words(rng, (*first, 4), counter), "key": _words(rng, (*second, 2), key)}


def keyed(rng: Rng, seed: str, shape: str, size: str) -> dict[str, Any]:
    """Return a call of `uniforms` or `xtc_coins`."""
    seeds = {"zero": 0, "small": 7, "low word": (1 << 32) - 1, "high word": 1 << 32, "largest": (1 << 64) - 1}
    drawn = [_words(rng, (4,), size).astype(np.int64) for _ in range(4)]
    if shape == "one":
        drawn = [x[:1] for x in drawn]
    if shape == "crossed":
        drawn = [drawn[0][:1], drawn[1][:, None], drawn[2][None], drawn[3][:1]]
    return {"seed": seeds[seed], **dict(zip(("round_", "prompt", "sample", "token"), drawn, strict=True))}


_KINDS = ("small", "large", "any")
_KEYED = {
    "seed": ("zero", "small", "low word", "high word", "largest"),
    "shape": ("one", "rows", "crossed"),
    "size": _KINDS,
}
GENERATORS = (
    Generator(
        "pack_sequences",
        {
            "count": tuple(COUNTS),
            "sizes": ("any", "equal", "full", "empty", "ones", "longer"),
            "bin": ("1", "2", "7", "8"),
            "strategy": ("first-fit-decreasing", "best-fit-decreasing", "wrapped"),
            "over long": ("error", "truncate", "split"),
        },
        lambda rng, bin, **levels: packed(rng, bin_=bin, **levels),  # noqa: A006  the factor's name
    ),
    Generator(
        "philox4x32_10",
        {"shape": ("one", "rows", "one key", "one counter"), "counter": _KINDS, "key": _KINDS},
        philox,
    ),
    Generator("uniforms", _KEYED, keyed),
    Generator("xtc_coins", _KEYED, keyed),
)
