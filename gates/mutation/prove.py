"""The order of a proof: green truth, then mutants, then sensitivities; each line is recorded before it is said."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from gates.model import Gate, Mutant, Subject, Verdict
from gates.mutation.proof import Sensitivity, Trialled, mutants_of, sensitivities, try_mutants
from gates.registry import Registry
from gates.report.progress import Bar
from gates.report.proof_table import scores
from gates.results.jsonl import Writer
from gates.results.records import MutantRecord, SensitivityRecord, verdict_record
from gates.run import session
from gates.run.engines.interface import Engine
from gates.run.runner import Options, plan
from gates.worker.process import Worker, WorkerError

Say = Callable[[str], None]
PROBED = ("rlkernels", "reference", "numpy")  # the first of these that passes a gate's cases is disturbed


def demonstrate(
    registry: Registry,
    gates: tuple[Gate, ...],
    options: Options,
    writer: Writer,
    command: list[str],
    say: Say,
    engine: Engine | None = None,
) -> int:
    """Prove the gates and return the exit code."""
    start = time.monotonic()
    truth = [subject for subject in registry.subjects.values() if subject.default]
    cells = plan(gates, truth, quick=options.quick)
    mutants = mutants_of(gates, registry.mutants.values())
    chosen = {gate.id: gate for gate in gates}
    planned = len(cells) + sum(
        len(plan([chosen[g] for g in m.caught_by if g in chosen], [registry.subjects[m.host]], quick=options.quick))
        for m in mutants
    )
    writer.write(session.header("prove", command, gates, truth, options, planned, engine="ray" if engine else "local"))
    say(f"truth: {len(cells)} verdicts on {', '.join(subject.name for subject in truth)}")
    with Bar("truth", len(cells)) as bar:

        def keep(verdict: Verdict) -> None:
            writer.write(verdict_record(verdict))
            bar.advance(verdict.where)

        tally = session.check(cells, options, None, (), keep, engine)
    green = tally.exit_code() == session.HELD
    say(f"truth: {tally.line()}")
    if not green:
        say("the truth is not green, so a mutant that fails would prove nothing; `gates check` says what fails")
        session.finish(writer, tally, time.monotonic() - start)
        return tally.exit_code()
    tried = _mutants(mutants, chosen, registry, options, writer, say, engine)
    wrong = len(mutants) - sum(record.state == "caught" for record in tried)
    _sensitivities(gates, registry, options, writer, say)
    code = session.FAILED if wrong else session.HELD
    session.finish(writer, tally, time.monotonic() - start, code)
    say(f"\nresults: {writer.path}")
    say(f"{len(mutants) - wrong} mutants caught, {wrong} not; {len(gates)} gates; {time.monotonic() - start:.0f} s")
    say(f"{len(mutants) - wrong} passed, {wrong} failed")
    return code


def _mutants(
    mutants: list[Mutant],
    chosen: dict[str, Gate],
    registry: Registry,
    options: Options,
    writer: Writer,
    say: Say,
    engine: Engine | None,
) -> list[MutantRecord]:
    say(f"\nmutants: {len(mutants)}, each in a fresh worker of its host")
    tried = []
    with Bar("mutants", len(mutants)) as bar:
        for done in try_mutants(mutants, chosen, registry.subjects, options, engine):
            for verdict in done.verdicts:
                writer.write(verdict_record(verdict, done.mutant.name))
            tried.append(mutant_record(done))
            writer.write(tried[-1])
            bar.say(_line(done))
            bar.advance(done.mutant.name)
    say("\nmutation score: " + ", ".join(f"{s.family} {s.caught}/{s.declared}" for s in scores(tried)))
    return tried


def mutant_record(done: Trialled) -> MutantRecord:
    """Return what became of a mutant as its line."""
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
    )


def _line(done: Trialled) -> str:
    gates = ", ".join(done.mutant.caught_by)
    return f"{done.state.upper():10} {done.mutant.name} in {done.mutant.host} by {gates}: {done.reason}"


def _sensitivities(gates: tuple[Gate, ...], registry: Registry, options: Options, writer: Writer, say: Say) -> None:
    say("\nsensitivity: the least relative error of its outputs that a gate notices (worst case of its cases)")
    benches: list[dict[str, Worker]] = []
    free: SimpleQueue[dict[str, Worker]] = SimpleQueue()
    pool = ThreadPoolExecutor(options.jobs)

    def probe(gate: Gate) -> list[Sensitivity]:
        workers = free.get()
        try:
            return _probe(gate, workers, registry.subjects, options)
        finally:
            free.put(workers)

    try:
        for number in range(options.jobs):
            benches.append({})
            _start(benches[-1], registry.subjects, options, say if number == 0 else None)
            free.put(benches[-1])
        for gate, found in zip(gates, pool.map(probe, gates), strict=True):
            for item in found:
                writer.write(
                    SensitivityRecord(gate=item.gate, subject=item.subject, case=item.case, noticed=item.noticed)
                )
            say(f"  {gate.id:42} {_worst(gate, found)}")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in [worker for workers in benches for worker in workers.values()]:
            worker.close()


def _start(workers: dict[str, Worker], subjects: dict[str, Subject], options: Options, say: Say | None) -> None:
    for name in PROBED:
        try:
            workers[name] = Worker.start(subjects[name], threads=options.threads)
        except WorkerError as error:
            if say is not None:
                say(f"  {name} is not probed: {error}")


def _probe(gate: Gate, workers: dict[str, Worker], subjects: dict[str, Subject], options: Options) -> list[Sensitivity]:
    if not gate.probes:
        return []
    for name in PROBED:
        worker = workers.get(name)
        if worker and worker.alive and all(op.name in worker.hello.provides for op in gate.ops):
            found = list(sensitivities(gate, subjects[name], options, worker))
            if found:  # nothing: it has the op, and none of the conventions that the cases need
                return found
    return []


def _worst(gate: Gate, found: list[Sensitivity]) -> str:
    if not gate.probes:
        return "exact: it counts, so there is no smallest error"
    if not found:
        return "not measured: no probed subject provides its ops"
    blind = [item for item in found if item.noticed is None]
    if blind:
        return f"nothing up to 0.1 in {blind[0].case} ({blind[0].subject})"
    worst = max(found, key=lambda item: item.noticed or 0.0)
    return f"{worst.noticed:.0e} ({worst.subject}, {worst.case})"
