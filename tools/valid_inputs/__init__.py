"""Valid inputs of the ops, drawn outside the gates' cases: every pair of choices of two factors, then choices at random.

Valid is what docs/definitions.md allows and the oracle accepts. Shapes are small, so that thousands of inputs take seconds;
what is rare in training is common here: one row, one token, as many groups as members, empty rows and groups, ties, values
exactly at a bound, NaN where nothing is scored.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

Rng = np.random.Generator
Factors = Mapping[str, Sequence[str]]
Levels = dict[str, str]  # the choice that was made of each factor
TRIES = 12  # rows that are drawn at random for one that covers pairs


@dataclass(frozen=True, slots=True)
class Generator:
    """How valid inputs of an op are made: the factors that differ, and the inputs of one choice of each."""

    op: str
    factors: Factors
    make: Callable[..., dict[str, Any]]

    def draw(self, number: int) -> tuple[Levels, dict[str, Any]]:
        """Return the choices and the inputs of this number; the first numbers cover every pair of choices."""
        rng = np.random.default_rng([zlib.crc32(self.op.encode()), number])
        rows = _covering(self)
        levels = rows[number] if number < len(rows) else _at_random(rng, self.factors)
        return levels, self.make(rng, **{name.replace(" ", "_"): level for name, level in levels.items()})


def _at_random(rng: Rng, factors: Factors) -> Levels:
    return {name: levels[int(rng.integers(len(levels)))] for name, levels in factors.items()}


_COVERING: dict[str, list[Levels]] = {}


def _covering(generator: Generator) -> list[Levels]:
    """Return choices in which each pair of levels of two factors occurs."""
    if generator.op not in _COVERING:
        _COVERING[generator.op] = list(covering(generator.factors))
    return _COVERING[generator.op]


def pairs(levels: Levels) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """Return each two of the choices."""
    return set(combinations(levels.items(), 2))


def covering(factors: Factors) -> Iterator[Levels]:
    """Yield choices until each pair of levels has occurred: greedily, each the best of a few that hold a missing pair."""
    rng = np.random.default_rng(0)
    missing = {
        ((a, x), (b, y)) for (a, xs), (b, ys) in combinations(factors.items(), 2) for x in xs for y in ys
    }  # fmt: skip
    while missing:
        ((a, x), (b, y)) = min(missing)
        drawn = [_at_random(rng, factors) | {a: x, b: y} for _ in range(TRIES)]
        best = max(drawn, key=lambda levels: len(pairs(levels) & missing))
        missing -= pairs(best)
        yield best
