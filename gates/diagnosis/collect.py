"""Diagnose the ops of a run whose definition does not hold, once for each subject and op."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gates.diagnosis import samples
from gates.diagnosis.diagnose import Diagnosis, diagnose
from gates.families.program import Program, Sample
from gates.families.programs import programs
from gates.model import Subject, Verdict
from gates.results.records import DiagnosisRecord
from gates.run.choices import chosen
from gates.run.plan import Options, PlannedCase
from gates.worker.process import Worker, WorkerError

TRIES = 3  # failing cases of an op that are diagnosed until one is named
NAMED = frozenset(("convention", "mistake", "scaled", "constant", "lower precision", "ambiguous"))


@dataclass(slots=True)
class Diagnoser:
    """Notes the verdicts of a run and then diagnoses each wrong op."""

    cases: Sequence[PlannedCase]
    options: Options
    failures: dict[tuple[str, str], list[Verdict]] = field(default_factory=dict)

    def note(self, verdict: Verdict) -> None:
        """Keep a verdict if its definition does not hold."""
        if verdict.status == "wrong" and verdict.level == "definition" and verdict.evidence:
            self.failures.setdefault((verdict.subject, verdict.op), []).append(verdict)

    def run(self) -> Iterator[DiagnosisRecord]:
        """Yield a record for each subject and wrong op that has a program and returned numbers."""
        planned = {case.names: case for case in self.cases}
        for subject in {case.subject.name: case.subject for case in self.cases}.values():
            wrong = {op: verdicts for (name, op), verdicts in self.failures.items() if name == subject.name}
            known = {op: verdicts for op, verdicts in wrong.items() if op.partition("[")[0] in programs()}
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
class _DiagnosedCase:
    """The diagnosis of one failing case."""

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
    """Diagnose failing cases until one is named; then see whether the case with the most settings reveals a second bug.

    A mistake in the KL, for example, is invisible in a case without one.
    """
    start, position = time.monotonic(), {names: index for index, names in enumerate(planned)}
    ordered = sorted(verdicts, key=lambda v: position[v.gate, v.subject, v.case])
    richest = max(ordered, key=lambda v: _settings(planned[v.gate, v.subject, v.case]))
    asked = _Asked(program, worker, planned)
    best: _DiagnosedCase | None = None
    for verdict, thorough in _tries(ordered[:TRIES], richest):
        diagnosed = asked.diagnosed(verdict, thorough=thorough)
        if diagnosed is not None and (best is None or diagnosed.named):
            best = diagnosed
        if best is not None and best.named:
            break
    for verdict in (ordered[0], richest):
        if best is None or not best.named or best.verdict is verdict:
            continue
        diagnosed = asked.diagnosed(verdict, thorough=True)
        if diagnosed is not None and diagnosed.named and best.diagnosis.words in diagnosed.diagnosis.words:
            best = diagnosed
    if best is not None and best.diagnosis.kind == "convention":
        best = _everywhere(asked, best, ordered)
    return None if best is None else record(program, best, seconds=time.monotonic() - start)


def _everywhere(
    asked: _Asked,
    best: _DiagnosedCase,
    verdicts: Sequence[Verdict],
) -> _DiagnosedCase:
    """Return a diagnosis of another choice, or one of a mistake if other failing cases are more than that choice.

    A loss may make another choice and, where there is a KL, a mistake too.
    """

    def switched_on(verdict: Verdict) -> frozenset[str]:
        conventions = asked.planned[verdict.gate, verdict.subject, verdict.case].case.conventions
        return frozenset(name for name, choice in conventions.items() if choice is not None and choice is not False)

    kinds = {switched_on(verdict): verdict for verdict in reversed(verdicts)}
    kinds.pop(switched_on(best.verdict), None)
    for verdict in sorted(kinds.values(), key=lambda verdict: -len(switched_on(verdict)))[:TRIES]:
        other = asked.diagnosed(verdict, thorough=False)
        if other is not None and other.diagnosis.kind not in {"convention", "as asked", "ambiguous"}:
            words = f"{best.diagnosis.words}; and more in {verdict.case}"
            if other.named:
                words += f": {other.diagnosis.words}"
            return replace(best, diagnosis=replace(best.diagnosis, kind="mistake", words=words, changes={}))
    return best


def _tries(ordered: Sequence[Verdict], richest: Verdict) -> Iterator[tuple[Verdict, bool]]:
    """Yield the cases to diagnose, each with whether the search is thorough: only after every case without."""
    cases = [*ordered, *([richest] if all(verdict is not richest for verdict in ordered) else [])]
    yield from ((verdict, False) for verdict in cases)
    yield from ((verdict, True) for verdict in ([richest] if ordered[0] is richest else [ordered[0], richest]))


@dataclass(slots=True)
class _Asked:
    """The subject's answers to the designed inputs of each case, asked once."""

    program: Program
    worker: Worker
    planned: Mapping[tuple[str, str, str], PlannedCase]
    answers: dict[str, list[Sample]] = field(default_factory=dict)

    def diagnosed(self, verdict: Verdict, *, thorough: bool) -> _DiagnosedCase | None:
        """Diagnose a case; None if the subject answered too few calls."""
        case = chosen(self.planned[verdict.gate, verdict.subject, verdict.case], self.worker.hello)
        key = f"{verdict.gate} {verdict.case}"
        if key not in self.answers:
            example = samples.example(case.gate, case.case, verdict.seed, self.program.op)
            self.answers[key] = samples.ask(self.program, self.worker, example) if example is not None else []
        answered = self.answers[key]
        if len(answered) < samples.LEAST:
            return None
        return _DiagnosedCase(diagnose(self.program, answered, pairs=thorough, coarse=thorough), verdict, len(answered))


def _settings(planned: PlannedCase) -> int:
    """Return how many conventions of a case are switched on."""
    return sum(choice is not None and choice is not False for choice in planned.case.conventions.values())


def declaration(program: Program, diagnosis: Diagnosis) -> str:
    """Return what a subject has to declare to be asked what it computes; empty if no declaration says it."""
    if diagnosis.kind != "convention":
        return ""
    return ", ".join(f"{name}=({value!r},)" for name, value in program.declared(diagnosis.changes).items())


def record(program: Program, case: _DiagnosedCase, *, seconds: float) -> DiagnosisRecord:
    """Return a diagnosis as a line of a results file."""
    diagnosis, verdict = case.diagnosis, case.verdict
    return DiagnosisRecord(
        subject=verdict.subject,
        op=verdict.op,
        gate=verdict.gate,
        case=verdict.case,
        kind=diagnosis.kind,
        computes=diagnosis.words if diagnosis.kind in NAMED else "",
        declare=declaration(program, diagnosis),
        where=diagnosis.where,
        rho=diagnosis.rho,
        next_rho=diagnosis.next_rho,
        tried=diagnosis.tried,
        inputs=case.inputs,
        seconds=round(seconds, 3),
    )
