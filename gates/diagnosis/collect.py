"""Diagnose the ops of a run whose definition does not hold: one answer for each subject and op."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gates.diagnosis import samples as asking
from gates.diagnosis.diagnose import Diagnosis, diagnose
from gates.families.program import Program
from gates.families.programs import programs
from gates.model import Subject, Verdict
from gates.results.records import DiagnosisRecord
from gates.run.choices import chosen
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of one failing case."""

    diagnosis: Diagnosis
    verdict: Verdict
    inputs: int

    @property
    def named(self) -> bool:
        return self.diagnosis.kind in NAMED


def _diagnosed(
    program: Program,
    worker: Worker,
    verdicts: Sequence[Verdict],
    planned: Mapping[tuple[str, str, str], PlannedCase],
) -> DiagnosisRecord | None:
    """Take failing cases as examples until one has a name; then look whether the one with most settings shows a bug more.

    A mistake in the KL, for one, does not show in a case without.
    """
    start, places = time.monotonic(), {names: place for place, names in enumerate(planned)}
    ordered = sorted(verdicts, key=lambda one: places[one.gate, one.subject, one.case])
    richest = max(ordered, key=lambda one: _settings(planned[one.gate, one.subject, one.case]))
    best: _Found | None = None
    for verdict in ordered[:TRIES]:
        found = _of_case(program, worker, verdict, planned[verdict.gate, verdict.subject, verdict.case])
        if found is not None and (best is None or found.named):
            best = found
        if best is not None and best.named:
            break
    if best is None or best.verdict is not richest:
        found = _of_case(program, worker, richest, planned[richest.gate, richest.subject, richest.case])
        if found is not None and (best is None or (found.named and best.diagnosis.words in found.diagnosis.words)):
            best = found
    return None if best is None else record(best, seconds=time.monotonic() - start)


def _of_case(program: Program, worker: Worker, verdict: Verdict, case: PlannedCase) -> _Found | None:
    case = chosen(case, worker.hello)
    given = asking.example(case.gate, case.case, verdict.seed, program.op)
    found = asking.ask(program, worker, given) if given is not None else []
    return None if len(found) < asking.LEAST else _Found(diagnose(program, found), verdict, len(found))


def _settings(planned: PlannedCase) -> int:
    """Return how many conventions of a case are on."""
    return sum(choice is not None and choice is not False for choice in planned.case.conventions.values())


def record(found: _Found, *, seconds: float) -> DiagnosisRecord:
    """Return a diagnosis as a line of a results file."""
    diagnosis, verdict = found.diagnosis, found.verdict
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
        inputs=found.inputs,
        seconds=round(seconds, 3),
    )
