"""Compute the coordinates of the sensitivity plot, which the page template draws."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gates.results.records import SensitivityRecord

WIDTH, STEP, TOP, RIGHT = 560, 18, 28, 30  # of the plot, in its own units
LETTER = 8.4  # the width of one letter of a gate's name, which is set in a monospaced face


@dataclass(frozen=True, slots=True)
class Row:
    """One gate: the coordinates of its cases, and the worst of them in words."""

    gate: str
    y: int
    points: tuple[float, ...]
    worst: float | None
    words: str
    blind: int


@dataclass(frozen=True, slots=True)
class Plot:
    """Frame, ticks and rows of a plot."""

    width: int
    height: int
    left: int
    right: int
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[Row, ...]


def plot(records: Iterable[SensitivityRecord]) -> Plot | None:
    """Return the least relative error that each gate notices, a point per case on a logarithmic axis; None if unknown."""
    by_gate: dict[str, list[SensitivityRecord]] = defaultdict(list)
    for record in records:
        by_gate[record.gate].append(record)
    noticed = [r.noticed for records_ in by_gate.values() for r in records_ if r.noticed and r.noticed > 0]
    if not noticed:
        return None
    low, high = math.floor(math.log10(min(noticed))), math.ceil(math.log10(max(noticed)))
    high = max(high, low + 1)
    left = round(LETTER * max(map(len, by_gate))) + 16

    def x(value: float) -> float:
        return round(left + WIDTH * (math.log10(value) - low) / (high - low), 1)

    rows = []
    for number, (gate, cases) in enumerate(sorted(by_gate.items())):
        values = sorted({r.noticed for r in cases if r.noticed and r.noticed > 0})
        blind = sum(r.noticed is None for r in cases)
        words = f"{values[-1]:.0e}" if values else "nothing that was tried"
        words += f"; {blind} of {len(cases)} cases notice nothing" if blind and values else ""
        points = tuple(x(value) for value in values)
        rows.append(Row(gate, TOP + STEP * number + STEP // 2, points, points[-1] if points else None, words, blind))
    every = 1 if high - low <= 8 else 2
    ticks = tuple((x(10.0**power), f"1e{power}") for power in range(low, high + 1, every))
    return Plot(left + WIDTH + RIGHT, TOP + STEP * len(rows) + 8, left, left + WIDTH, ticks, tuple(rows))
