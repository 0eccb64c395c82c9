"""Diagnose the ops of a run whose definition does not hold: one answer for each subject and op."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gates.diagnosis import samples as asking
from gates.diagnosis.diagnose import Diagnosis, diagnose
from gates.diagnosis.program import Program
from gates.diagnosis.programs import programs
from gates.model import Subject, Verdict
from gates.results.records import DiagnosisRecord
from gates.run.plan import Options, PlannedCase
from gates.worker.process import Worker, WorkerError

TRIES = 3  # cases of an op that are taken as examples until one has a name
NAMED = frozenset(("convention", "mistake", "scaled", "lower precision", "ambiguous"))
BY_VALUE = frozenset(("definition",))  # causes of a verdict that says: other numbers than asked


@dataclass(slots=True)
class Diagnoser:
    """Notes the verdicts of a run; afterwards says what each wrong op computes instead."""

    cases: Sequence[PlannedCase]
    options: Options
    failures: dict[tuple[str, str], list[Verdict]] = field(default_factory=dict)

    def note(self, verdict: Verdict) -> None:
        """Keep a verdict that says that a definition does not hold."""
        if verdict.status == "wrong" and verdict.level == "definition" and verdict.evidence:
            self.failures.setdefault((verdict.subject, verdict.op), []).append(verdict)

    def run(self) -> Iterator[DiagnosisRecord]:
        """Yield a record for each subject and op that a program knows and that returned numbers."""
        planned = {case.names: case for case in self.cases}
        for subject in {case.subject.name: case.subject for case in self.cases}.values():
            wrong = {op: found for (name, op), found in self.failures.items() if name == subject.name}
            known = {op: found for op, found in wrong.items() if op.partition("[")[0] in programs()}
            if known:
                with contextlib.suppress(WorkerError):
                    yield from self._of(subject, known, planned)

    def _of(
        self, subject: Subject, wrong: Mapping[str, list[Verdict]], planned: Mapping[tuple[str, str, str], PlannedCase]
    ) -> Iterator[DiagnosisRecord]:
        worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
        try:
            for op, verdicts in wrong.items():
                if not worker.alive:
                    worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
                if record := _diagnosed(programs()[op.partition("[")[0]], worker, verdicts, planned):
                    yield record
        finally:
            worker.close()


def _diagnosed(
    program: Program,
    worker: Worker,
    verdicts: Sequence[Verdict],
    planned: Mapping[tuple[str, str, str], PlannedCase],
) -> DiagnosisRecord | None:
    start = time.monotonic()
    best: tuple[Diagnosis, Verdict, int] | None = None
    for verdict in _telling(verdicts, planned):
        case = planned[verdict.gate, verdict.subject, verdict.case]
        given = asking.example(case.gate, case.case, verdict.seed, program.op)
        found = asking.ask(program, worker, given) if given is not None else []
        if len(found) < asking.LEAST:
            continue
        diagnosis = diagnose(program, found)
        if best is None or diagnosis.kind in NAMED:
            best = (diagnosis, verdict, len(found))
        if diagnosis.kind in NAMED:
            break
    return None if best is None else record(*best, seconds=time.monotonic() - start)


def _telling(verdicts: Sequence[Verdict], planned: Mapping[tuple[str, str, str], PlannedCase]) -> Iterator[Verdict]:
    """Yield the failures that are tried as examples: the one with most settings on, where every mistake shows; then simple ones."""

    def settings(verdict: Verdict) -> int:
        conventions = planned[verdict.gate, verdict.subject, verdict.case].case.conventions.values()
        return sum(choice is not None and choice is not False for choice in conventions)

    richest = max(verdicts, key=settings)
    yield richest
    yield from sorted((one for one in verdicts if one is not richest), key=settings)[: TRIES - 1]


def record(diagnosis: Diagnosis, verdict: Verdict, inputs: int, *, seconds: float) -> DiagnosisRecord:
    """Return a diagnosis as a line of a results file."""
    return DiagnosisRecord(
        subject=verdict.subject,
        op=verdict.op,
        gate=verdict.gate,
        case=verdict.case,
        kind=diagnosis.kind,
        computes=diagnosis.words if diagnosis.kind in NAMED else "",
        where=diagnosis.where,
        rho=diagnosis.rho,
        next_rho=diagnosis.next_rho,
        tried=diagnosis.tried,
        inputs=inputs,
        seconds=round(seconds, 3),
    )
