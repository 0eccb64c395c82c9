"""Results files to try readers on, made without judging anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gates.model import STATUSES, Evidence, Status, Verdict
from gates.results.jsonl import Writer
from gates.results.records import HeaderRecord, Machine, PlanRecord, Record, SummaryRecord, verdict_record
from gates.run.plan import Names
from gates.run.shards import digest

MACHINE = Machine(system="s", cpu="c", cores=2, features=[])


def header(cells: Iterable[Names], **changes: Any) -> HeaderRecord:
    """The header of a whole run over these cells."""
    cells = list(cells)
    fields: dict[str, Any] = {
        "verb": "check",
        "command": ["check"],
        "started": "2026-11-21T00:00:00+00:00",
        "tool": "rl-gates 0",
        "commit": None,
        "dirty": None,
        "machine": MACHINE,
        "python": "3",
        "numpy": "2",
        "blas": "b",
        "jobs": 1,
        "threads": 1,
        "seed": 0,
        "quick": True,
        "model": None,
        "gates": sorted({gate for gate, _, _ in cells}),
        "subjects": sorted({subject for _, subject, _ in cells}),
        "planned": len(cells),
        "plan": PlanRecord(digest=digest(cells), cells=len(cells)),
    }
    return HeaderRecord(**{**fields, **changes})


def verdict(cell: Names, status: Status = "correct", seconds: float = 0.5) -> Verdict:
    """A verdict with one piece of evidence."""
    held = Evidence("q", 1.0 if status == "correct" else float("nan"), "<=", 2.0, "exact: a test")
    reason = "" if status == "correct" else held.sentence()
    return Verdict(
        *cell, 1, status, "held" if status == "correct" else "bound", reason, evidence=(held,), seconds=seconds
    )


def whole(cells: Iterable[Names], head: HeaderRecord, statuses: Iterable[Status] = ()) -> list[Record]:
    """The lines of a complete run over cells; those without a status pass."""
    given = list(statuses)
    found = [verdict(c, given[i] if i < len(given) else "correct") for i, c in enumerate(cells)]
    counts = Counter(v.status for v in found)
    code = 1 if counts["wrong"] else 4 if counts["error"] else 0 if counts["correct"] else 3
    end = SummaryRecord(counts={s: counts[s] for s in STATUSES}, seconds=1.0, exit_code=code)
    return [head, *(verdict_record(v) for v in found), end]


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write records as a run would."""
    writer = Writer(path)
    for record in records:
        writer.write(record)
    writer.close()
    return path
