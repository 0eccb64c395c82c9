"""All recorded calibrations together: false alarms of each gate on each backend, BLAS and dtype over all their seeds.

A seed counts once, however many files have it; it counts where every cell of the row was judged at it. A file of other
code than the newest one of its gate is counted, and named as such.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gates.calibration_limits import NOWHERE, Place
from gates.calibration_rate import upper_bound
from gates.report.calibration import MEASURED, seeds_of
from gates.results.escape import code, in_table
from gates.results.jsonl import Results

DTYPES = re.compile(r"(?:^|-)(float64|float32|float16|bfloat16|uint32|int32)(?:-|$)")


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """What false alarms are counted over."""

    gate: str
    backend: str
    blas: str
    dtype: str  # of the case's name; empty: it names none
    full: bool


@dataclass(slots=True)
class Sum:
    """What all files say of one row."""

    cells: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))  # subject, case → seeds
    newest: dict[tuple[str, str], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )  # those of the newest code
    alarms: set[int] = field(default_factory=set)
    alarms_of_newest: set[int] = field(default_factory=set)
    commits: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    @property
    def seeds(self) -> int:
        """How many seeds every cell was judged at."""
        return len(set.intersection(*self.cells.values())) if self.cells else 0

    @property
    def seeds_of_newest(self) -> int:
        """How many of them by the newest code of the gate."""
        return len(set.intersection(*(self.newest[cell] for cell in self.cells))) if self.cells else 0

    @property
    def bound(self) -> float | None:
        """The exact 95% upper bound of the rate; None where nothing was judged."""
        seeds = max(self.seeds, len(self.alarms))
        return upper_bound(len(self.alarms), seeds) if seeds else None


def sums(runs: Sequence[Results]) -> dict[Row, Sum]:
    """Return every row over all calibrations, in order."""
    calibrations = sorted((run for run in runs if run.header.verb == "calibrate"), key=lambda run: run.header.started)
    newest = {gate: run.header.codes.get(gate, run.path.name) for run in calibrations for gate in run.header.gates}
    found: dict[Row, Sum] = {}
    for run in calibrations:
        places = {record.subject: Place.of(record.versions) for record in run.subjects}
        for block in run.blocks:
            if not block.counts.keys() & MEASURED:
                continue
            place = places.get(block.subject, NOWHERE)
            row = Row(block.gate, place.backend, place.blas, dtype(block.case), run.header.full)
            whole = found.setdefault(row, Sum())
            seeds = seeds_of(block)
            whole.cells[block.subject, block.case] |= seeds
            alarms = {alarm.seed for alarm in block.alarms}
            whole.alarms |= alarms
            if run.header.codes.get(block.gate, run.path.name) == newest[block.gate]:
                whole.newest[block.subject, block.case] |= seeds
                whole.alarms_of_newest |= alarms
            whole.commits[_commit(run)] |= seeds
    return dict(sorted(found.items()))


def dtype(case: str) -> str:
    """Return the dtype that a case's name says, or nothing."""
    match = DTYPES.search(case)
    return match[1] if match else ""


def lines(runs: Iterable[Results]) -> list[str]:
    """Return the table, or nothing where there is no calibration."""
    rows = sums(list(runs))
    if not rows:
        return []
    return [
        "## All recorded calibrations together",
        "",
        "A seed counts once, in however many files it is, and where every cell of its row was judged at it. Seeds of the",
        "newest code are those that the gate's check, oracle and limits of the last file with this gate judged; the others",
        "were judged by earlier code, and the commits say which. The bound is the exact 95% upper bound of the rate (Clopper",
        "and Pearson) over all of them.",
        "",
        "| gate | backend | BLAS | dtype | seeds | of the newest code | seeds with an alarm | rate at most (95%) | commits: seeds |",
        "|---|---|---|---|---|---|---|---|---|",
        *_table(rows),
        "",
    ]


def _table(rows: dict[Row, Sum]) -> Iterator[str]:
    for row, whole in rows.items():
        bound = "nothing was judged" if whole.bound is None else f"{whole.bound:.2g}"
        alarms = f"**{len(whole.alarms)}**" if whole.alarms else "0"
        if whole.alarms_of_newest < whole.alarms:
            alarms += f" ({len(whole.alarms_of_newest) or 'none'} of the newest code)"
        commits = ", ".join(f"{name}: {len(seeds)}" for name, seeds in whole.commits.items())
        name = f"{code(row.gate, cell=True)}{' (all draws)' if row.full else ''}"
        yield (
            f"| {name} | {in_table(row.backend)} | {in_table(row.blas)} | {row.dtype or '–'} | {whole.seeds} "
            f"| {whole.seeds_of_newest} "
            f"| {alarms} | {bound} | {commits} |"
        )


def _commit(run: Results) -> str:
    commit = run.header.commit
    return f"{commit[:8]}{' (dirty)' if run.header.dirty else ''}" if commit else "no checkout"
