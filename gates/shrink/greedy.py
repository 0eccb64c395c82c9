"""Greedy shrinking: take any smaller candidate that still fails, until none does or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Literal

from gates.shrink.flatten import flat, models, nested
from gates.shrink.moves import MOVES, Inputs, measure
from gates.shrink.rollout_cut import fewer
from gates.shrink.simplify import omit_optional, simpler_scalars

NONE: frozenset[str] = frozenset()
Move = Callable[[Inputs], Iterator[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing inputs that were found, and why the search ended: no move makes them smaller, or something else."""

    inputs: dict[str, Any]
    tries: int
    end: Literal["smallest", "time", "stopped"]


@dataclass(slots=True)
class _Search:
    best: dict[str, Any]
    fails: Callable[[dict[str, Any]], bool]
    deadline: float
    tries: int = 0
    size: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.size = measure(self.best)

    def exhaust(self, move: Move) -> bool:
        """Take what a move offers until a whole round of it offers nothing; return whether anything was taken.

        After a success the round goes on where it was, for what came before has just been refused on inputs that differ
        little; a round counts as whole only when all of it was refused on the same inputs.

        Raises:
            TimeoutError: the time is over.
        """
        moved, start = False, 0
        while True:
            place = self._take(move, start, None)
            if place is None and start:
                place = self._take(move, 0, start)
            if place is None:
                return moved
            moved, start = True, place

    def _take(self, move: Move, start: int, stop: int | None) -> int | None:
        candidates = move(self.best)
        for place in count():
            if time.monotonic() > self.deadline:
                raise TimeoutError
            if place == stop or (candidate := next(candidates, None)) is None:
                return None
            if place < start or (size := measure(candidate)) >= self.size:
                continue
            self.tries += 1
            if self.fails(candidate):
                self.best, self.size = candidate, size
                return place
        raise AssertionError("count ends")  # pragma: no cover  it does not


def shrink(
    inputs: Inputs,
    fails: Callable[[dict[str, Any]], bool],
    budget_s: float,
    *,
    settled: frozenset[str] = NONE,
    optional: frozenset[str] = NONE,
) -> Shrunk:
    """Return smaller inputs for which `fails` is true; the given ones are taken to fail, and are not changed.

    `settled` names the scalars that keep their value, `optional` what may be None instead. Ctrl-C ends the search with
    the smallest that it has.
    """
    table = flat(inputs)
    kept = {path: table.pop(path) for path in models(table)}
    search = _Search(table, lambda candidate: fails(nested({**candidate, **kept})), time.monotonic() + budget_s)
    moves: tuple[Move, ...] = (
        fewer,
        partial(omit_optional, optional=optional),
        *MOVES,
        partial(simpler_scalars, settled=settled),
    )
    end: Literal["smallest", "time", "stopped"] = "smallest"
    try:
        moved = True
        while moved:  # one move may open the way for another
            moved = False
            for move in moves:
                moved |= search.exhaust(move)
    except TimeoutError:
        end = "time"
    except KeyboardInterrupt:
        end = "stopped"
    return Shrunk(nested({**search.best, **kept}), search.tries, end)
