"""Valid inputs of an op, drawn outside the gates' cases: every pair of choices of two factors, then choices at random.

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

Choices = dict[str, Any]
Factors = Mapping[str, Sequence[Any]]
TRIES = 12  # rows that are drawn at random for one that covers pairs
DTYPES = ("float32", "float64")
_COVERING: dict[str, list[Choices]] = {}


@dataclass(frozen=True, slots=True)
class Generator:
    """How valid inputs of an op are made from a choice of each factor.

    Attributes:
        op: the op's name.
        factors: what may be chosen, by the keyword of `make`; the first choice of each is the usual one.
        make: returns inputs from a random generator and the choices.
    """

    op: str
    factors: Factors
    make: Callable[..., dict[str, Any]]

    def draw(self, number: int) -> tuple[Choices, dict[str, Any]]:
        """Return the choices and the inputs of this number; the first numbers cover every pair of choices."""
        if self.op not in _COVERING:
            _COVERING[self.op] = list(covering(self.factors))
        rng, rows = np.random.default_rng([zlib.crc32(self.op.encode()), number]), _COVERING[self.op]
        choices = rows[number] if number < len(rows) else at_random(rng, self.factors)
        return choices, self.make(rng, **choices)

    def usual(self, **choices: Any) -> dict[str, Any]:
        """Return inputs of the usual choices, or of these, without those that are None."""
        first = {name: options[0] for name, options in self.factors.items()}
        wanted = {name: choice for name, choice in choices.items() if name in first}
        made = self.make(np.random.default_rng(zlib.crc32(self.op.encode())), **(first | wanted))
        return {name: value for name, value in made.items() if value is not None}


def at_random(rng: np.random.Generator, factors: Factors) -> Choices:
    """Return one choice of each factor."""
    return {name: options[int(rng.integers(len(options)))] for name, options in factors.items()}


def pairs(choices: Choices) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    """Return each two of the choices."""
    return set(combinations(choices.items(), 2))


def covering(factors: Factors) -> Iterator[Choices]:
    """Yield choices until each pair has occurred: greedily, each the best of a few that hold a missing pair."""
    rng = np.random.default_rng(0)
    both = ((a, x, b, y) for (a, xs), (b, ys) in combinations(factors.items(), 2) for x in xs for y in ys)
    missing = {((a, x), (b, y)): None for a, x, b, y in both}  # in order
    while missing:
        held = dict(next(iter(missing)))
        drawn = [at_random(rng, factors) | held for _ in range(TRIES)]
        best = max(drawn, key=lambda choices: len(pairs(choices) & missing.keys()))
        missing = {pair: None for pair in missing if pair not in pairs(best)}
        yield best
