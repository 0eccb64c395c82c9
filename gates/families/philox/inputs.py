"""Valid calls of keyed random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.valid import Generator
from gates.model import Array

RANGES = ((0, 8), ((1 << 32) - 8, 1 << 32), (0, 1 << 32))  # of words
PLACES = ("round_", "prompt", "sample", "token")


def valid_words(
    rng: np.random.Generator,
    leading: tuple[tuple[int, ...], tuple[int, ...]],
    counter: tuple[int, int],
    key: tuple[int, int],
) -> dict[str, Any]:
    """Return a call of `philox4x32_10`."""
    counters, keys = leading
    return {
        "counter": rng.integers(*counter, (*counters, 4)).astype(np.uint32),
        "key": rng.integers(*key, (*keys, 2)).astype(np.uint32),
    }


def valid_places(
    rng: np.random.Generator, seed: int, count: int, leading: str, words: tuple[int, int]
) -> dict[str, Any]:
    """Return a call of `uniforms` or `xtc_coins`."""
    drawn: list[Array] = list(rng.integers(*words, (4, count)))
    if leading == "one":
        drawn = [x[:1] for x in drawn]
    if leading == "crossed":
        drawn = [drawn[0][:1], drawn[1][:, None], drawn[2][None], drawn[3][:1]]
    return {"seed": seed, **dict(zip(PLACES, drawn, strict=True))}


KEYED: dict[str, tuple[Any, ...]] = {
    "count": (4,),
    "seed": (7, 0, (1 << 32) - 1, 1 << 32, (1 << 64) - 1),
    "leading": ("rows", "one", "crossed"),
    "words": RANGES,
}
GENERATORS = (
    Generator(
        "philox4x32_10",
        {"leading": (((5,), (5,)), ((), ()), ((3, 2), ()), ((), (4,))), "counter": RANGES, "key": RANGES},
        valid_words,
    ),
    Generator("uniforms", KEYED, valid_places),
    Generator("xtc_coins", KEYED, valid_places),
)
