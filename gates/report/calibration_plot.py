"""How near each gate came to its limit over the seeds of a calibration, as a picture: numbers only, the template draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gates.report.calibration import Rate, gate, nearest, rates, refused, share_words
from gates.report.sensitivity_plot import LETTER, STEP, TOP, WIDTH
from gates.results.records import CalibrationRecord, FalsePositiveRecord

MOST = 1.25  # of the limit, at the right edge; what is beyond is drawn there, and its number is in the table
LABEL = 230  # units right of it, for the number of seeds and false positives
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One gate: where its largest share stands, and the words of the table below."""

    gate: str
    y: int
    x: float | None  # None: no claim of it has a recorded limit above 0
    rate: Rate
    share: str
    where: str

    @property
    def words(self) -> str:
        """Return what stands at the right end of its line."""
        seeds = f"{self.rate.seeds} {'seed' if self.rate.seeds == 1 else 'seeds'}"
        return f"{seeds}, {len(self.rate.refused)} with a false positive" if self.rate.refused else seeds


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture's frame, ticks and rows, and every false positive with the command that shows it again."""

    width: int
    height: int
    left: int
    right: int
    ticks: tuple[tuple[float, str], ...]
    limit: float
    rows: tuple[Row, ...]
    false_positives: tuple[tuple[CalibrationRecord, FalsePositiveRecord, str], ...]


def plot(lines: Sequence[CalibrationRecord]) -> Plot | None:
    """Return the largest share of a limit that each gate saw on correct subjects; None if nothing was judged."""
    found = rates(lines, gate)
    if not found:
        return None
    near = nearest(lines)
    left = round(LETTER * max(len(name) for (name,) in found)) + 16

    def x(share: float) -> float:
        return round(left + WIDTH * min(max(share, 0.0), MOST) / MOST, 1)

    rows = []
    for number, ((name,), rate) in enumerate(found.items()):
        share, where = near.get(name, (None, ""))
        at = None if share is None else x(share)
        words = "none" if share is None else share_words(share)
        rows.append(Row(name, TOP + STEP * number + STEP // 2, at, rate, words, where))
    ticks = tuple((x(share), "the limit" if share == 1.0 else f"{share:g}") for share in TICKS)
    width, height = left + WIDTH + LABEL, TOP + STEP * len(rows) + 8
    return Plot(width, height, left, left + WIDTH, ticks, x(1.0), tuple(rows), tuple(refused(lines)))
