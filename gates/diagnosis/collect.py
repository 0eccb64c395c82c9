"""Diagnose the ops of a run whose definition does not hold, once for each subject and op."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gates.diagnosis import samples
from gates.diagnosis.agreement import explains
from gates.diagnosis.diagnose import diagnose, diagnose_rare
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.search import Search
from gates.families.program import Program, Sample
from gates.families.programs import programs
from gates.model import Subject, Verdict
from gates.results.records import DiagnosisRecord
from gates.run.choices import chosen
from gates.run.plan import Options, PlannedCase
from gates.worker.process import Worker, WorkerError

TRIES = 3  # failing cases of an op that are diagnosed until one is named
NAMED = frozenset(("convention", "mistake", "scaled", "constant", "lower precision", "ambiguous"))


_Planned = Mapping[tuple[str, str, str], PlannedCase]
_Search = Callable[[Program, Worker, Sequence[Verdict], _Planned], "DiagnosisRecord | None"]


@dataclass(slots=True)
class Diagnoser:
    """Notes the verdicts of a run and then diagnoses each wrong op, and each fragile one whose choice rare input shows."""

    cases: Sequence[PlannedCase]
    options: Options
    failures: dict[tuple[str, str], list[Verdict]] = field(default_factory=dict)
    fragile: dict[tuple[str, str], list[Verdict]] = field(default_factory=dict)

    def note(self, verdict: Verdict) -> None:
        """Keep a verdict if its definition does not hold, or not on rare input."""
        key, evident = (verdict.subject, verdict.op), [verdict] if verdict.evidence else []
        if verdict.status == "wrong" and verdict.level == "definition":
            self.failures.setdefault(key, []).extend(evident)
        if verdict.status == "fragile":
            self.fragile.setdefault(key, []).extend(evident)

    def run(self) -> Iterator[DiagnosisRecord]:
        """Yield a record for each subject and wrong op that has a program and returned numbers."""
        planned = {case.names: case for case in self.cases}
        for subject in {case.subject.name: case.subject for case in self.cases}.values():
            wrong, fragile = (_of_subject(noted, subject) for noted in (self.failures, self.fragile))
            known = {op: (_diagnosed, verdicts) for op, verdicts in wrong.items() if verdicts}
            known |= {op: (_diagnosed_rare, verdicts) for op, verdicts in fragile.items() if op not in wrong}
            if known:
                with contextlib.suppress(WorkerError):
                    yield from self._of(subject, known, planned)

    def _of(
        self, subject: Subject, known: Mapping[str, tuple[_Search, list[Verdict]]], planned: _Planned
    ) -> Iterator[DiagnosisRecord]:
        worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
        try:
            for op, (diagnosed, verdicts) in known.items():
                if not worker.alive:
                    worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
                if record := diagnosed(programs()[op.partition("[")[0]], worker, verdicts, planned):
                    yield record
        finally:
            worker.close()


def _of_subject(noted: Mapping[tuple[str, str], list[Verdict]], subject: Subject) -> dict[str, list[Verdict]]:
    """Return the verdicts on the ops of a subject that have a program."""
    return {
        op: verdicts
        for (name, op), verdicts in noted.items()
        if name == subject.name and op.partition("[")[0] in programs()
    }


@dataclass(frozen=True, slots=True)
class _DiagnosedCase:
    """The diagnosis of one failing case."""

    diagnosis: Diagnosis
    verdict: Verdict
    inputs: int

    @property
    def named(self) -> bool:
        """Whether one definition is named."""
        return self.diagnosis.kind in NAMED - {"ambiguous"}


def _diagnosed(
    program: Program,
    worker: Worker,
    verdicts: Sequence[Verdict],
    planned: _Planned,
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
        if diagnosed is not None and (best is None or diagnosed.named or best.diagnosis.kind not in NAMED):
            best = diagnosed
        if best is not None and best.named:
            break
    for verdict in (ordered[0], richest):
        if best is None or not best.named or best.verdict is verdict:
            continue
        diagnosed = asked.diagnosed(verdict, thorough=True)
        if diagnosed is not None and diagnosed.named and best.diagnosis.words in diagnosed.diagnosis.words:
            best = diagnosed
    if best is not None and best.named:
        best = _everywhere(asked, best, ordered)
    if best is not None and not best.named:
        best = _of_rare_input(program, worker, ordered, planned) or best
    return None if best is None else record(program, best, seconds=time.monotonic() - start)


def _diagnosed_rare(
    program: Program, worker: Worker, verdicts: Sequence[Verdict], planned: _Planned
) -> DiagnosisRecord | None:
    """Diagnose a fragile op, if it makes a choice that only rare input shows."""
    start = time.monotonic()
    named = _of_rare_input(program, worker, verdicts, planned)
    return None if named is None else record(program, named, seconds=time.monotonic() - start)


def _of_rare_input(
    program: Program, worker: Worker, verdicts: Sequence[Verdict], planned: _Planned
) -> _DiagnosedCase | None:
    """Diagnose cases, each on draws of its own input, until a choice that only such input shows has a name."""
    for verdict in verdicts[:TRIES]:
        case = chosen(planned[verdict.gate, verdict.subject, verdict.case], worker.hello)
        calls = samples.draws(case.gate, case.case, verdict.seed, program.op)
        answered = samples.answers(program, worker, calls)
        diagnosis = diagnose_rare(program, answered) if len(answered) >= samples.LEAST else None
        if diagnosis is not None and diagnosis.kind == "convention":
            return _DiagnosedCase(diagnosis, verdict, len(answered))
    return None


def _everywhere(
    asked: _Asked,
    best: _DiagnosedCase,
    verdicts: Sequence[Verdict],
) -> _DiagnosedCase:
    """Return a name that explains every kind of failing case, or one that says what more there is.

    A loss may make another choice and, where there is a KL, a mistake too. A size or a factor that fits one case alone is
    a coincidence, and no name.
    """

    def switched_on(verdict: Verdict) -> frozenset[tuple[str, str]]:
        conventions = asked.planned[verdict.gate, verdict.subject, verdict.case].case.conventions
        return frozenset((k, str(x)) for k, x in conventions.items() if x is not None and x is not False)

    kinds = {switched_on(verdict): verdict for verdict in reversed(verdicts)}
    kinds.pop(switched_on(best.verdict), None)
    for verdict in sorted(kinds.values(), key=lambda verdict: -len(switched_on(verdict)))[:TRIES]:
        if asked.explained(best.diagnosis, verdict):
            continue
        other = asked.diagnosed(verdict, thorough=False)
        if other is None or other.diagnosis.kind in {"as asked", "ambiguous"}:
            continue
        if other.named and asked.explained(other.diagnosis, best.verdict):
            best = other
        elif best.diagnosis.factor or any(edit.alone for edit in best.diagnosis.edits):
            return other if not other.named else replace(best, diagnosis=Diagnosis("nothing known"))
        elif best.diagnosis.kind == other.diagnosis.kind and best.diagnosis.kind in {"convention", "constant"}:
            continue
        else:
            words = f"{best.diagnosis.words}; and more in {verdict.case}"
            words += f": {other.diagnosis.words}" if other.named else ""
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
    planned: _Planned
    answers: dict[str, list[Sample]] = field(default_factory=dict)
    searches: dict[str, dict[bool, Search]] = field(default_factory=dict)  # by case, for a more thorough one

    def diagnosed(self, verdict: Verdict, *, thorough: bool) -> _DiagnosedCase | None:
        """Diagnose a case; None if the subject answered too few calls."""
        answered = self.answered(verdict)
        if len(answered) < samples.LEAST:
            return None
        kept = self.searches.setdefault(self._key(verdict), {})
        diagnosis = diagnose(self.program, answered, pairs=thorough, coarse=thorough, searches=kept)
        return _DiagnosedCase(diagnosis, verdict, len(answered))

    def explained(self, diagnosis: Diagnosis, verdict: Verdict) -> bool:
        """Whether the name of another case explains this one; it does if the subject answered too few calls."""
        answered = self.answered(verdict)
        return len(answered) < samples.LEAST or explains(self.program, diagnosis, answered)

    def _key(self, verdict: Verdict) -> str:
        return f"{verdict.gate} {verdict.case}"

    def answered(self, verdict: Verdict) -> list[Sample]:
        """Return the subject's answers to the designed calls of a case."""
        case = chosen(self.planned[verdict.gate, verdict.subject, verdict.case], self.worker.hello)
        key = self._key(verdict)
        if key not in self.answers:
            example = samples.example(case.gate, case.case, verdict.seed, self.program.op)
            self.answers[key] = samples.ask(self.program, self.worker, example) if example is not None else []
        return self.answers[key]


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
