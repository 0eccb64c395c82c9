"""Shrink greedily: accept any smaller candidate that fails, until none does or the time is up."""

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
    """The smallest failing inputs, and why the search ended; `smallest`: no move shrinks them further."""

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
        """Apply a move until none of its candidates fails; return whether any was accepted.

        After a success the search continues at the same position, because earlier candidates were just refused on similar
        inputs. It ends when every candidate was refused on the same inputs.

        Raises:
            TimeoutError: the deadline has passed.
        """
        moved, start = False, 0
        while True:
            position = self._take(move, start, None)
            if position is None and start:
                position = self._take(move, 0, start)
            if position is None:
                return moved
            moved, start = True, position

    def _take(self, move: Move, start: int, stop: int | None) -> int | None:
        candidates = move(self.best)
        for position in count():
            if time.monotonic() > self.deadline:
                raise TimeoutError
            if position == stop or (candidate := next(candidates, None)) is None:
                return None
            if position < start or (size := measure(candidate)) >= self.size:
                continue
            self.tries += 1
            if self.fails(candidate):
                self.best, self.size = candidate, size
                return position
        raise AssertionError("count ends")  # pragma: no cover


def shrink(
    inputs: Inputs,
    fails: Callable[[dict[str, Any]], bool],
    budget_s: float,
    *,
    settled: frozenset[str] = NONE,
    optional: frozenset[str] = NONE,
) -> Shrunk:
    """Return smaller inputs for which `fails` is true, given inputs for which it is.

    `settled` names scalars that keep their values, `optional` inputs that may be None. Ctrl-C ends the search with the
    smallest inputs so far.
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
        while moved:  # one move may enable another
            moved = False
            for move in moves:
                moved |= search.exhaust(move)
    except TimeoutError:
        end = "time"
    except KeyboardInterrupt:
        end = "stopped"
    return Shrunk(nested({**search.best, **kept}), search.tries, end)
