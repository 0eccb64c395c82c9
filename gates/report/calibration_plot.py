"""The coordinates of a plot of each gate's largest share of its limit; the template draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.report.calibration import Rate, gate, nearest, rates, refused, share_label
from gates.report.sensitivity_plot import LETTER, STEP, TOP, WIDTH
from gates.results.calibration_records import CalibrationRecord, FalsePositiveRecord

MOST = 1.25  # share of the limit at the right edge; larger shares are drawn there, with their number in the table
LABEL = 230  # width right of the plot, for the number of seeds and false positives
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One gate: the coordinates of its largest share, and the cells of the table below."""

    gate: str
    y: int
    x: float | None  # None: none of its claims has a recorded limit above 0
    rate: Rate
    share: str
    where: str

    @property
    def label(self) -> str:
        """Return the text at the right end of the row."""
        seeds = f"{self.rate.seeds} {'seed' if self.rate.seeds == 1 else 'seeds'}"
        return f"{seeds}, {len(self.rate.refused)} with a false positive" if self.rate.refused else seeds


@dataclass(frozen=True, slots=True)
class Plot:
    """The frame, ticks and rows of a plot, and every false positive with the command that reproduces it."""

    width: int
    height: int
    left: int
    right: int
    ticks: tuple[tuple[float, str], ...]
    limit: float
    rows: tuple[Row, ...]
    false_positives: tuple[tuple[CalibrationRecord, FalsePositiveRecord, str], ...]


def plot(lines: Sequence[CalibrationRecord]) -> Plot | None:
    """Return the plot of the largest share of a limit at each gate; None if nothing was judged."""
    by_gate = rates(lines, gate)
    if not by_gate:
        return None
    shares = nearest(lines)
    left = round(LETTER * max(len(name) for (name,) in by_gate)) + 16

    def x(share: float) -> float:
        return round(left + WIDTH * min(max(share, 0.0), MOST) / MOST, 1)

    rows = []
    for number, ((name,), rate) in enumerate(by_gate.items()):
        share, where = shares.get(name, (None, ""))
        position = None if share is None else x(share)
        label = "none" if share is None else share_label(share)
        rows.append(Row(name, TOP + STEP * number + STEP // 2, position, rate, label, where))
    ticks = tuple((x(share), "the limit" if share == 1.0 else f"{share:g}") for share in TICKS)
    width, height = left + WIDTH + LABEL, TOP + STEP * len(rows) + 8
    return Plot(width, height, left, left + WIDTH, ticks, x(1.0), tuple(rows), tuple(refused(lines)))
