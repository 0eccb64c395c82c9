"""Conduct a proof: unmutated baseline run, then mutants, then sensitivities; each line is written before it is shown."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

from gates.model import LEVELS, Gate, Mutant, Subject, Verdict
from gates.mutation.proof import Sensitivity, Trialled, distance, far_outputs, mutants_of, sensitivities, try_mutants
from gates.registry import Registry
from gates.report.progress import Bar
from gates.report.proof_table import scores
from gates.results.jsonl import Writer
from gates.results.records import MutantRecord, SensitivityRecord, verdict_record
from gates.run import session
from gates.run.engines.interface import Engine
from gates.run.plan import Options, PlannedCase, plan
from gates.worker.process import Worker, WorkerError

PROBED = ("rlkernels", "reference", "numpy")  # subjects whose outputs are perturbed, in order of preference


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """The gates to prove, and where results are written and shown."""

    registry: Registry
    gates: tuple[Gate, ...]
    options: Options
    writer: Writer
    command: list[str]
    show: Callable[[str], None]
    engine: Engine | None = None  # None: this machine's workers
    first: bool = False  # mutants only: no baseline, no sensitivities, and a gate ends at its first failing case

    @property
    def subjects(self) -> list[Subject]:
        """The correct subjects: without a mutation each must pass. Variants are not hosts of mutants."""
        variants = self.options.full
        return [s for s in self.registry.subjects.values() if s.default and (variants or not s.is_variant)]

    @property
    def mutants(self) -> list[Mutant]:
        """The mutants that these gates must catch."""
        return mutants_of(self.gates, self.registry.mutants.values())


def demonstrate(request: ProofRequest) -> int:
    """Prove the gates and return the exit code."""
    start = time.monotonic()
    writer, mutants = request.writer, request.mutants
    cases = [] if request.first else plan(request.gates, request.subjects, quick=request.options.quick, proof=True)
    writer.write(session.header(_info(request, len(cases))))
    tally = _baseline(request, cases)
    if not request.first and tally.exit_code() != session.HELD:
        request.show(
            "the unmutated baseline run does not hold, so a mutant that fails would prove nothing; "
            "`gates check` shows what fails"
        )
        session.finish(writer, tally, time.monotonic() - start)
        return tally.exit_code()
    tried = _mutants(request, mutants)
    wrong = len(mutants) - sum(record.state == "caught" for record in tried)
    if not request.first:
        _sensitivities(request)
    code: int = session.FAILED if wrong else session.HELD
    if request.first and not mutants:
        code = tally.exit_code()  # nothing was measured
    seconds = time.monotonic() - start
    session.finish(writer, tally, seconds, code)
    levels = Counter(record.level for record in tried if record.state == "caught" and record.level)
    request.show("caught at: " + ", ".join(f"{level} {levels[level]}" for level in LEVELS if levels[level]))
    request.show(f"\nresults: {writer.path}")
    request.show(f"{len(mutants) - wrong} mutants caught, {wrong} not; {len(request.gates)} gates; {seconds:.0f} s")
    request.show(f"{len(mutants) - wrong} passed, {wrong} failed")
    return code


def _info(request: ProofRequest, baseline: int) -> session.RunInfo:
    """Return the header's data; its number of verdicts counts baseline and mutants."""
    chosen, quick = {gate.id: gate for gate in request.gates}, request.options.quick

    def cases(mutant: Mutant) -> int:
        catching = [chosen[gate] for gate in mutant.caught_by if gate in chosen]
        planned = plan(catching, [request.registry.subjects[mutant.host]], quick=quick, proof=True)
        return sum(mutant.has(each.case) for each in planned)

    planned = baseline + sum(map(cases, request.mutants))
    return session.RunInfo(
        "prove",
        request.command,
        request.gates,
        request.subjects,
        request.options,
        planned,
        engine="ray" if request.engine else "local",
    )


def _baseline(request: ProofRequest, cases: list[PlannedCase]) -> session.Tally:
    """Judge the unmutated subjects; `first` skips this."""
    if request.first:
        request.show("unmutated baseline: left out; `gates check` judges it")
        return session.Tally()
    names = ", ".join(subject.name for subject in request.subjects)
    request.show(f"unmutated baseline: {len(cases)} verdicts on {names}")
    with Bar("baseline", len(cases)) as bar:

        def keep(verdict: Verdict) -> None:
            request.writer.write(verdict_record(verdict))
            bar.advance(verdict.where)

        tally = session.check(session.CheckRequest(cases, request.options, on_verdict=keep, engine=request.engine))
    request.show(f"unmutated baseline: {tally.line()}")
    return tally


def _mutants(request: ProofRequest, mutants: list[Mutant]) -> list[MutantRecord]:
    """Run every mutant, write and show its result, and return the records."""
    request.show(f"\nmutants: {len(mutants)}, each in a fresh worker of its host")
    chosen = {gate.id: gate for gate in request.gates}
    tried = []
    with Bar("mutants", len(mutants)) as bar:
        subjects = request.registry.subjects
        for done in try_mutants(mutants, chosen, subjects, request.options, request.engine, first=request.first):
            for verdict in done.verdicts:
                request.writer.write(verdict_record(verdict, done.mutant.name))
            tried.append(mutant_record(done))
            request.writer.write(tried[-1])
            bar.say(_line(done))
            bar.advance(done.mutant.name)
    request.show("\nmutation score: " + ", ".join(f"{s.family} {s.caught}/{s.declared}" for s in scores(tried)))
    return tried


def mutant_record(done: Trialled) -> MutantRecord:
    """Return the record of a mutant's result."""
    m = done.mutant
    return MutantRecord(
        mutant=m.name,
        mistake=m.mistake,
        host=m.host,
        seam=m.target,
        caught_by=list(m.caught_by),
        source=m.source,
        arises=m.arises,
        theme=m.theme,
        symptom=m.symptom,
        state=done.state,
        reason=done.reason,
        level=done.decided.level if done.decided else None,
        distance=distance(done.decided) if done.decided else None,
        outputs=far_outputs(done.verdicts),
    )


def _line(done: Trialled) -> str:
    gates = ", ".join(done.mutant.caught_by)
    at = f" at {done.decided.level}" if done.decided else ""
    return f"{done.state.upper():10} {done.mutant.name} in {done.mutant.host} by {gates}{at}: {done.reason}"


def _sensitivities(request: ProofRequest) -> None:
    """Measure the sensitivity of every gate, with one set of workers for each thread."""
    request.show("\nsensitivity: the least relative error of its outputs that a gate notices (worst case of its cases)")
    started: list[dict[str, Worker]] = []
    free: SimpleQueue[dict[str, Worker]] = SimpleQueue()
    pool = ThreadPoolExecutor(request.options.jobs)

    def probe(gate: Gate) -> list[Sensitivity]:
        workers = free.get()
        try:
            return _probe(gate, workers, request.registry.subjects, request.options)
        finally:
            free.put(workers)

    try:
        for number in range(request.options.jobs):
            started.append({})
            _start(started[-1], request, quiet=number > 0)
            free.put(started[-1])
        for gate, measured in zip(request.gates, pool.map(probe, request.gates), strict=True):
            for item in measured:
                request.writer.write(
                    SensitivityRecord(gate=item.gate, subject=item.subject, case=item.case, noticed=item.noticed)
                )
            request.show(f"  {gate.id:42} {_worst(gate, measured)}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in [worker for workers in started for worker in workers.values()]:
            worker.close()


def _start(workers: dict[str, Worker], request: ProofRequest, *, quiet: bool) -> None:
    for name in PROBED:
        try:
            workers[name] = Worker.start(request.registry.subjects[name], threads=request.options.threads)
        except WorkerError as error:
            if not quiet:
                request.show(f"  {name} is not probed: {error}")


def _probe(gate: Gate, workers: dict[str, Worker], subjects: dict[str, Subject], options: Options) -> list[Sensitivity]:
    if not gate.probes:
        return []
    for name in PROBED:
        worker = workers.get(name)
        if worker and worker.alive and all(op.name in worker.hello.provides for op in gate.ops):
            measured = list(sensitivities(gate, subjects[name], options, worker))
            if measured:  # empty if the subject has none of the conventions that the cases need
                return measured
    return []


def _worst(gate: Gate, sensitivities: list[Sensitivity]) -> str:
    if not gate.probes:
        return "exact: it counts, so there is no smallest error"
    if not sensitivities:
        return "not measured: no probed subject provides its ops"
    blind = [item for item in sensitivities if item.noticed is None]
    if blind:
        return f"nothing up to 0.1 in {blind[0].case} ({blind[0].subject})"
    worst = max(sensitivities, key=lambda item: item.noticed or 0.0)
    return f"{worst.noticed:.0e} ({worst.subject}, {worst.case})"
