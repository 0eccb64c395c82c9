"""How near each gate came to its limit over the seeds of a calibration, as a picture: numbers only, the template draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gates.report.calibration import flaky, rates, reproduces, share_words
from gates.report.sensitivity_plot import LETTER, STEP, TOP, WIDTH
from gates.results.records import AlarmRecord, BlockRecord

MOST = 1.25  # of the limit, at the right edge; what is beyond is drawn there, and its number is told
TOLD = 210  # units right of it, for the number of seeds and alarms
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One gate: where its worst share stands, and the words of the table below."""

    gate: str
    y: int
    x: float | None  # None: no claim of it has a recorded limit above 0
    seeds: int
    verdicts: int
    alarms: int
    bound: str  # of the rate of false alarms
    share: str
    where: str

    @property
    def told(self) -> str:
        """Return what stands at the right end of its line."""
        seeds = f"{self.seeds} {'seed' if self.seeds == 1 else 'seeds'}"
        return f"{seeds}, {self.alarms} with a false alarm" if self.alarms else seeds


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture's frame, ticks and rows, and every false alarm with the command that shows it again."""

    width: int
    height: int
    left: int
    right: int
    ticks: tuple[tuple[float, str], ...]
    limit: float
    rows: tuple[Row, ...]
    alarms: tuple[tuple[BlockRecord, AlarmRecord, str], ...]


def plot(blocks: Sequence[BlockRecord], *, full: bool) -> Plot | None:
    """Return the largest share of a limit that each gate saw on correct subjects; None if nothing was judged."""
    found = rates(blocks)
    if not found:
        return None
    worst = _worst(blocks)
    left = round(LETTER * max(len(rate.name) for rate in found)) + 16

    def x(share: float) -> float:
        return round(left + WIDTH * min(max(share, 0.0), MOST) / MOST, 1)

    rows = []
    for number, rate in enumerate(found):
        share, where = worst.get(rate.name, (None, ""))
        words = "none" if share is None else share_words(share)
        place = None if share is None else x(share)
        y = TOP + STEP * number + STEP // 2
        rows.append(Row(rate.name, y, place, rate.seeds, rate.verdicts, rate.alarms, rate.told, words, where))
    ticks = tuple((x(share), "the limit" if share == 1.0 else f"{share:g}") for share in TICKS)
    alarms = tuple((block, alarm, reproduces(block, alarm, full=full)) for block, alarm in flaky(blocks))
    width, height = left + WIDTH + TOLD, TOP + STEP * len(rows) + 8
    return Plot(width, height, left, left + WIDTH, ticks, x(1.0), tuple(rows), alarms)


def _worst(blocks: Sequence[BlockRecord]) -> dict[str, tuple[float, str]]:
    """Return the largest share of each gate and where it was; claims without a recorded limit have none."""
    worst: dict[str, tuple[float, str]] = {}
    for block in blocks:
        for item in block.shares:
            if item.share is None:
                continue
            share = math.inf if math.isnan(item.share) else item.share  # no number is as bad as an infinite one
            where = f"{item.quantity}: {block.subject}, {block.case}, seed {item.seed}"
            if block.gate not in worst or (share, where) > worst[block.gate]:
                worst[block.gate] = (share, where)
    return worst
