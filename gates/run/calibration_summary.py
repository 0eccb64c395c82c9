"""Count the seeds of calibrations, merge their lines, and keep the file that sums all recorded runs.

A recorded seed counts as long as the code of its gate is unchanged. Seeds of older code are dropped when the next run is
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
from gates.results.calibration_records import (
    CalibrationRecord,
    CaseSeeds,
    FalsePositiveRecord,
    NearestRecord,
    seeds_of,
    seeds_text,
)
from gates.results.jsonl import Results, as_line, read
from gates.results.records import HeaderRecord, SubjectRecord, SummaryRecord
from gates.run.session import FAILED, HELD, NOTHING

NAME = "calibration.jsonl"
DIRTY = " (dirty)"  # suffix of a commit from which tracked files differed
MOST = 3  # gates named in a note
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
class Platform:
    """The backend of a subject and its BLAS; unknown for a worker that did not start."""

    backend: str = "unknown"
    blas: str = "unknown"

    @classmethod
    def of(cls, versions: Mapping[str, str]) -> Platform:
        """Derive it from a worker's handshake: MLX's device, and the BLAS that was preloaded."""
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
    """The counts of one gate × subject, kept as sets so that repeated seeds count once."""

    seeds: dict[Kind, Seeds] = field(default_factory=lambda: {kind: defaultdict(set) for kind in KINDS})
    retried: Seeds = field(default_factory=lambda: defaultdict(set))
    false_positives: dict[tuple[str, int], FalsePositiveRecord] = field(default_factory=dict)
    nearest: dict[str, NearestRecord] = field(default_factory=dict)  # by quantity
    commits: dict[str, None] = field(default_factory=dict)

    def count(self, verdict: Verdict, seed: int, *, retried: bool) -> None:
        """Count a verdict. Its seed is added last, so that a seed interrupted by Ctrl-C is judged again."""
        case = verdict.case
        if is_false_positive(verdict):
            self.false_positives[case, seed] = FalsePositiveRecord(
                case=case, seed=seed, status=verdict.status, cause=verdict.cause, reason=verdict.reason
            )
        for item in verdict.evidence:
            if item.role == "claim" and item.relation == "<=" and item.limit > 0:
                claim = NearestRecord(
                    quantity=item.quantity,
                    case=case,
                    seed=seed,
                    share=item.observed / item.limit,
                    observed=item.observed,
                    limit=item.limit,
                )
                self._keep_nearest(claim)
        if retried:
            self.retried[case].add(seed)
        self.seeds[verdict.status if verdict.status in ("unsupported", "skipped") else "judged"][case].add(seed)

    def merge(self, record: CalibrationRecord) -> None:
        """Add a recorded line."""
        for kind, cases in record.seeds.items():
            for case, text in cases.items():
                self.seeds[kind][case] |= seeds_of(text)
        for case, text in record.retried.items():
            self.retried[case] |= seeds_of(text)
        self.false_positives |= {(item.case, item.seed): item for item in record.false_positives}
        for claim in record.nearest:
            self._keep_nearest(claim)
        self.commits |= dict.fromkeys(record.commits)

    def _keep_nearest(self, claim: NearestRecord) -> None:
        if claim.quantity not in self.nearest or size(claim) > size(self.nearest[claim.quantity]):
            self.nearest[claim.quantity] = claim

    def record(self, gate: str, subject: str, platform: Platform, cpu: str, *, full: bool) -> CalibrationRecord:
        """Return the line of a file. A judged seed leaves all other kinds."""
        by_kind: dict[Kind, CaseSeeds] = {}
        known: Seeds = defaultdict(set)
        for kind in KINDS:
            by_kind[kind] = _texts({case: seeds - known[case] for case, seeds in self.seeds[kind].items()})
            for case, seeds in self.seeds[kind].items():
                known[case] |= seeds
        refused = self.false_positives.items()
        return CalibrationRecord(
            gate=gate,
            subject=subject,
            backend=platform.backend,
            blas=platform.blas,
            cpu=cpu,
            full=full,
            commits=list(self.commits),
            seeds={kind: cases for kind, cases in by_kind.items() if cases},
            retried=_texts(self.retried),
            false_positives=[item for (case, seed), item in sorted(refused) if seed in self.seeds["judged"][case]],
            nearest=[self.nearest[key] for key in sorted(self.nearest)],
        )


def _texts(seeds: Seeds) -> CaseSeeds:
    return {case: seeds_text(numbers) for case, numbers in sorted(seeds.items()) if numbers}


def size(claim: NearestRecord) -> float:
    """Return the sort key of claims; NaN counts as infinite, because every comparison with NaN is false."""
    number = claim.observed if claim.share is None else claim.share
    return math.inf if math.isnan(number) else number


def added(records: Iterable[CalibrationRecord]) -> list[CalibrationRecord]:
    """Merge lines by gate × subject × machine × kind of draws; a seed in several lines counts once."""
    lines: dict[tuple[str, str, Platform, str, bool], Line] = defaultdict(Line)
    for line in records:
        platform = Platform(line.backend, line.blas)
        lines[line.gate, line.subject, platform, line.cpu, line.full].merge(line)
    return [
        lines[gate, subject, platform, cpu, full].record(gate, subject, platform, cpu, full=full)
        for gate, subject, platform, cpu, full in sorted(lines, key=str)
    ]


def commit_label(header: HeaderRecord) -> str:
    """Return the name of a run's commit for its lines."""
    return f"{header.commit[:8]}{DIRTY if header.dirty else ''}" if header.commit else "no checkout"


def counts(record: CalibrationRecord) -> Counter[Status]:
    """Return the number of verdicts of each status in a line."""
    totals: Counter[Status] = Counter()
    for kind, cases in record.seeds.items():
        totals[SHOWN[kind]] += sum(len(seeds_of(text)) for text in cases.values())
    for item in record.false_positives:
        totals["correct"] -= 1
        totals[item.status] += 1
    return totals


def exit_code(lines: Sequence[CalibrationRecord]) -> int:
    """Return 1 for a false positive, 3 if nothing was measured, else 0."""
    if any(line.false_positives for line in lines):
        return FAILED
    return HELD if any("judged" in line.seeds for line in lines) else NOTHING


def done(run: Results, header: HeaderRecord, kinds: Iterable[Kind]) -> dict[Key, set[int]]:
    """Return the seeds of these kinds that a run with this header can skip.

    They were judged by the same code of the gate, with the same draws, on the same processor.
    """
    seeds: dict[Key, set[int]] = defaultdict(set)
    for line in run.calibrations:
        same = run.header.codes.get(line.gate) == header.codes.get(line.gate)
        if same and line.full == header.full and line.cpu == header.machine.cpu:
            for kind in kinds:
                for case, text in line.seeds.get(kind, {}).items():
                    seeds[line.gate, line.subject, case] |= seeds_of(text)
    return seeds


def record(run: Results, path: Path, now: Mapping[str, str]) -> list[str]:
    """Merge a run into the summary, and return notes about the recorded and the dropped seeds.

    Args:
        run: a finished calibration.
        path: the summary file.
        now: the digest of each gate's current code; seeds judged by other code are dropped.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    with _locked(path.parent):
        old = read(path) if path.is_file() else None
        parts = [old, run] if old else [run]
        judged = {(line.gate, line.subject) for line in run.calibrations}  # an absent subject may be installed by now
        lines, stale = [], set()
        for part in parts:
            for line in part.calibrations:
                if line.gate not in now or part.header.codes.get(line.gate) != now[line.gate]:
                    stale.add(line.gate)
                elif part is run or not ABSENT.issuperset(line.seeds) or (line.gate, line.subject) not in judged:
                    lines.append(line)
        lines = added(lines)
        write_whole(path, map(as_line, _summary(lines, parts, now)))
    total = sum(line.verdicts for line in lines)
    notes = [f"recorded in {path}: {total} verdicts of {len({line.gate for line in lines})} gates"]
    if stale:
        notes.append(f"dropped from {path}, because their code has changed since: {_names(sorted(stale))}")
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
    """Return the last line of a file with these lines."""
    total = sum(map(counts, lines), Counter[Status]())
    return SummaryRecord(
        counts={status: total[status] for status in STATUSES}, seconds=round(seconds, 3), exit_code=exit_code(lines)
    )


def _names(gates: Sequence[str]) -> str:
    return ", ".join(gates[:MOST]) + (f" and {len(gates) - MOST} more gates" if len(gates) > MOST else "")


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Serialise the merging of runs that are recorded at the same time."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
