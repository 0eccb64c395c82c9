"""Count what calibrations judge: lines of seeds, how they add up, and the one file in which recorded runs are summed.

A recorded seed counts as long as the code of its gate is the same. Seeds of other code are dropped when the next run is
recorded. The code of the subject is not compared; each line names the commits.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gates.errors import unwritable
from gates.model import FAILURES, STATUSES, Status, Verdict
from gates.results.atomic_write import write_whole
from gates.results.jsonl import Results, as_line, read
from gates.results.records import (
    CalibrationRecord,
    CaseSeeds,
    FalsePositiveRecord,
    HeaderRecord,
    NearestRecord,
    SubjectRecord,
    SummaryRecord,
    seeds_of,
    seeds_text,
)
from gates.run.session import FAILED, HELD, NOTHING

NAME = "calibration.jsonl"
DIRTY = " (dirty)"  # behind a commit: tracked files differed from it
MOST = 3  # gates that a note names
Kind = Literal["judged", "unsupported", "skipped", "uncalibrated"]
KINDS: tuple[Kind, ...] = ("judged", "unsupported", "skipped", "uncalibrated")
ABSENT: frozenset[Kind] = frozenset(("skipped", "uncalibrated"))
SHOWN: Mapping[Kind, Status] = {
    "judged": "correct",
    "unsupported": "unsupported",
    "skipped": "skipped",
    "uncalibrated": "error",
}
Key = tuple[str, str, str]  # gate, subject, case
Seeds = dict[str, set[int]]  # case → seeds


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subject computes: the backend and its BLAS. A worker that does not start says nothing of it."""

    backend: str = "unknown"
    blas: str = "unknown"

    @classmethod
    def of(cls, versions: Mapping[str, str]) -> Place:
        """Read it from what a worker says of itself: MLX's device, and the BLAS that was loaded before it."""
        if "mlx" in versions:
            device = "gpu" if "gpu" in versions.get("device", "") else "cpu"
            preloaded = versions.get("preloaded", "").lower()
            return cls(f"mlx-{device}", "openblas" if "openblas" in preloaded else "own")
        return cls("rlkernels" if "rlkernels" in versions else "numpy", "own")


def is_false_positive(verdict: Verdict) -> bool:
    """Return whether a verdict on a correct subject is a false positive."""
    return verdict.status in {*FAILURES, "error"}


@dataclass(slots=True)
class Line:
    """What was seen of one gate × subject. All of it is sets, so that what is seen or added twice counts once."""

    seeds: dict[Kind, Seeds] = field(default_factory=lambda: {kind: defaultdict(set) for kind in KINDS})
    retried: Seeds = field(default_factory=lambda: defaultdict(set))
    false_positives: dict[tuple[str, int], FalsePositiveRecord] = field(default_factory=dict)
    nearest: dict[str, NearestRecord] = field(default_factory=dict)  # of each quantity
    commits: dict[str, None] = field(default_factory=dict)

    def see(self, verdict: Verdict, seed: int, *, retried: bool) -> None:
        """Count a verdict. Its seed comes last: where Ctrl-C comes before, the seed is judged again and nothing is lost."""
        case = verdict.case
        if is_false_positive(verdict):
            self.false_positives[case, seed] = FalsePositiveRecord(
                case=case, seed=seed, status=verdict.status, cause=verdict.cause, reason=verdict.reason
            )
        for item in verdict.evidence:
            if item.role == "claim" and item.relation == "<=" and item.limit > 0:
                near = NearestRecord(
                    quantity=item.quantity,
                    case=case,
                    seed=seed,
                    share=item.observed / item.limit,
                    observed=item.observed,
                    limit=item.limit,
                )
                self._near(near)
        if retried:
            self.retried[case].add(seed)
        self.seeds[verdict.status if verdict.status in ("unsupported", "skipped") else "judged"][case].add(seed)

    def take(self, record: CalibrationRecord) -> None:
        """Add a line that was written before."""
        for kind, cases in record.seeds.items():
            for case, text in cases.items():
                self.seeds[kind][case] |= seeds_of(text)
        for case, text in record.retried.items():
            self.retried[case] |= seeds_of(text)
        self.false_positives |= {(found.case, found.seed): found for found in record.false_positives}
        for found in record.nearest:
            self._near(found)
        self.commits |= dict.fromkeys(record.commits)

    def _near(self, found: NearestRecord) -> None:
        if found.quantity not in self.nearest or size(found) > size(self.nearest[found.quantity]):
            self.nearest[found.quantity] = found

    def record(self, gate: str, subject: str, place: Place, cpu: str, *, full: bool) -> CalibrationRecord:
        """Return the line as it is written. A seed that was judged in the end is of no other kind."""
        left: dict[Kind, CaseSeeds] = {}
        known: Seeds = defaultdict(set)
        for kind in KINDS:
            left[kind] = _texts({case: seeds - known[case] for case, seeds in self.seeds[kind].items()})
            for case, seeds in self.seeds[kind].items():
                known[case] |= seeds
        refused = self.false_positives.items()
        return CalibrationRecord(
            gate=gate,
            subject=subject,
            backend=place.backend,
            blas=place.blas,
            cpu=cpu,
            full=full,
            commits=list(self.commits),
            seeds={kind: cases for kind, cases in left.items() if cases},
            retried=_texts(self.retried),
            false_positives=[found for (case, seed), found in sorted(refused) if seed in self.seeds["judged"][case]],
            nearest=[self.nearest[key] for key in sorted(self.nearest)],
        )


def _texts(seeds: Seeds) -> CaseSeeds:
    return {case: seeds_text(numbers) for case, numbers in sorted(seeds.items()) if numbers}


def size(found: NearestRecord) -> float:
    """Return what claims are compared by; NaN counts as infinite, because every comparison with NaN is false."""
    number = found.observed if found.share is None else found.share
    return math.inf if math.isnan(number) else number


def added(records: Iterable[CalibrationRecord]) -> list[CalibrationRecord]:
    """Return a line for each gate × subject × machine × kind of draws: a seed that several lines have counts once."""
    lines: dict[tuple[str, str, Place, str, bool], Line] = defaultdict(Line)
    for found in records:
        place = Place(found.backend, found.blas)
        lines[found.gate, found.subject, place, found.cpu, found.full].take(found)
    return [
        lines[gate, subject, place, cpu, full].record(gate, subject, place, cpu, full=full)
        for gate, subject, place, cpu, full in sorted(lines, key=str)
    ]


def commit_words(header: HeaderRecord) -> str:
    """Return the commit that a run's lines name."""
    return f"{header.commit[:8]}{DIRTY if header.dirty else ''}" if header.commit else "no checkout"


def counts(record: CalibrationRecord) -> Counter[Status]:
    """Return how many verdicts of each status a line stands for."""
    found: Counter[Status] = Counter()
    for kind, cases in record.seeds.items():
        found[SHOWN[kind]] += sum(len(seeds_of(text)) for text in cases.values())
    for item in record.false_positives:
        found["correct"] -= 1
        found[item.status] += 1
    return found


def exit_code(lines: Sequence[CalibrationRecord]) -> int:
    """Return 1 for a false positive, 3 where nothing was measured, else 0."""
    if any(line.false_positives for line in lines):
        return FAILED
    return HELD if any("judged" in line.seeds for line in lines) else NOTHING


def done(run: Results, header: HeaderRecord, kinds: Iterable[Kind]) -> dict[Key, set[int]]:
    """Return the seeds of these kinds that a run with this header need not judge again.

    They were judged by the same code of the gate, with the same draws and on the same processor.
    """
    found: dict[Key, set[int]] = defaultdict(set)
    for line in run.calibrations:
        same = run.header.codes.get(line.gate) == header.codes.get(line.gate)
        if same and line.full == header.full and line.cpu == header.machine.cpu:
            for kind in kinds:
                for case, text in line.seeds.get(kind, {}).items():
                    found[line.gate, line.subject, case] |= seeds_of(text)
    return found


def record(run: Results, path: Path, now: Mapping[str, str]) -> list[str]:
    """Merge a run into the summary, and return notes of what was kept and what was dropped.

    `now` has the digest of the present code of every gate. Seeds that other code judged are dropped.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    with _locked(path.parent):
        old = read(path) if path.is_file() else None
        parts = [old, run] if old else [run]
        again = {(line.gate, line.subject) for line in run.calibrations}  # a subject that was absent may be here now
        lines, stale = [], set()
        for part in parts:
            for line in part.calibrations:
                if line.gate not in now or part.header.codes.get(line.gate) != now[line.gate]:
                    stale.add(line.gate)
                elif part is run or not ABSENT.issuperset(line.seeds) or (line.gate, line.subject) not in again:
                    lines.append(line)
        lines = added(lines)
        write_whole(path, map(as_line, _summary(lines, parts, now)))
    total = sum(line.verdicts for line in lines)
    notes = [f"recorded in {path}: {total} verdicts of {len({line.gate for line in lines})} gates"]
    if stale:
        notes.append(f"not in {path}, because the code changed since they were judged: {_names(sorted(stale))}")
    return notes


def _summary(
    lines: Sequence[CalibrationRecord], parts: Sequence[Results], now: Mapping[str, str]
) -> Iterable[HeaderRecord | SubjectRecord | CalibrationRecord | SummaryRecord]:
    run = parts[-1]
    gates, subjects = (sorted({getattr(line, name) for line in lines}) for name in ("gate", "subject"))
    total = sum(map(counts, lines), Counter[Status]())
    changed = {
        "gates": gates,
        "subjects": subjects,
        "codes": {gate: now[gate] for gate in gates},
        "planned": total.total(),
        "dirty": run.header.dirty or any(DIRTY in commit for line in lines for commit in line.commits),
        "seeds": None,
        "beside": [],
    }
    yield run.header.model_copy(update=changed)
    handshakes = {record.subject: record for part in parts for record in part.subjects}
    yield from (handshakes[name] for name in subjects if name in handshakes)
    yield from lines
    yield summary_record(lines, sum(part.summary.seconds for part in parts if part.summary))


def summary_record(lines: Sequence[CalibrationRecord], seconds: float) -> SummaryRecord:
    """Return the line that ends a file of these lines."""
    total = sum(map(counts, lines), Counter[Status]())
    return SummaryRecord(
        counts={status: total[status] for status in STATUSES}, seconds=round(seconds, 3), exit_code=exit_code(lines)
    )


def _names(gates: Sequence[str]) -> str:
    return ", ".join(gates[:MOST]) + (f" and {len(gates) - MOST} more gates" if len(gates) > MOST else "")


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Let two runs that are recorded at the same time merge one after the other."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
