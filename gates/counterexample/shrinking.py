"""Greedy shrinking: take any smaller candidate that still fails, until none does or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gates.counterexample.moves import MOVES, Inputs, measure


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing inputs that were found. `finished` says that no move makes them smaller."""

    inputs: dict[str, Any]
    tries: int
    finished: bool


def shrink(inputs: Inputs, fails: Callable[[dict[str, Any]], bool], budget_s: float) -> Shrunk:
    """Return smaller inputs for which `fails` is true; the given ones are taken to fail, and are not changed."""
    deadline = time.monotonic() + budget_s
    best, size, tries = dict(inputs), measure(inputs), 0
    moved = True
    while moved:
        moved = False
        for move in MOVES:
            again = True
            while again:  # a move that made progress starts over on what it made
                again = False
                for candidate in move(best):
                    if time.monotonic() > deadline:
                        return Shrunk(best, tries, finished=False)
                    smaller = measure(candidate)
                    if smaller >= size:
                        continue
                    tries += 1
                    if fails(candidate):
                        best, size, again, moved = candidate, smaller, True, True
                        break
    return Shrunk(best, tries, finished=True)
