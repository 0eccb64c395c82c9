"""Say what an op of a subject computes, with nothing asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gates.diagnosis import samples as asking
from gates.diagnosis.diagnose import Diagnosis, identify
from gates.families.program import Inputs, Program, Sample
from gates.model import Case, Gate, Subject, UnsupportedError
from gates.run.choices import chosen
from gates.run.judge import lacking
from gates.run.plan import PlannedCase, case_seed
from gates.worker.process import Worker

TRIES = 12  # cases whose settings a subject is called with until it answers


@dataclass(frozen=True, slots=True)
class Identified:
    """What one op computes.

    Attributes:
        op: its name.
        diagnosis: what was found; None where the subject answered no call.
        settings: the keywords of the calls that are no arrays.
        inputs: how many designed calls were answered.
        reason: why there is no diagnosis.
    """

    op: str
    diagnosis: Diagnosis | None
    settings: Mapping[str, object]
    inputs: int
    reason: str = ""


def ops_of(subject: Subject) -> frozenset[str]:
    """Return the ops that a subject has.

    Raises:
        WorkerError: the subject does not start.
    """
    worker = Worker.start(subject, threads=1)
    try:
        return frozenset(worker.hello.provides)
    finally:
        worker.close()


def identified(program: Program, gates: Iterable[Gate], subject: Subject, threads: int = 1) -> Identified:
    """Call a subject with the designed inputs of an op and name what it computes.

    Raises:
        WorkerError: the subject does not start.
    """
    worker = Worker.start(subject, threads=threads)
    try:
        if program.op not in worker.hello.provides:
            return Identified(program.op, None, {}, 0, f"{subject.name} does not have {program.op}")
        for given in _examples(program, gates, subject, worker):
            found = asking.ask(program, worker, given)
            if len(found) >= asking.LEAST:
                return Identified(program.op, identify(program, found), _settings(found[0]), len(found))
            if not worker.alive:
                worker = Worker.start(subject, threads=threads)
    finally:
        worker.close()
    return Identified(program.op, None, {}, 0, f"{subject.name} answered none of the calls of {program.op}")


def _examples(program: Program, gates: Iterable[Gate], subject: Subject, worker: Worker) -> Iterator[Inputs]:
    """Yield calls of cases that the subject declares to support, those with a KL first: they show more."""
    found: list[Inputs] = []
    for gate, case in _cases(program, gates):
        planned = _chosen(PlannedCase(gate, subject, case), worker)
        if len(found) < TRIES and planned is not None and not lacking(planned, worker.hello):
            given = asking.example(gate, planned.case, case_seed(gate, case, 0), program.op)
            found += [] if given is None else [given]
    for given in sorted(found, key=lambda inputs: not inputs.get("beta")):
        yield from program.examples(given)


def _chosen(planned: PlannedCase, worker: Worker) -> PlannedCase | None:
    try:
        return chosen(planned, worker.hello)
    except UnsupportedError:
        return None


def _cases(program: Program, gates: Iterable[Gate]) -> Iterator[tuple[Gate, Case]]:
    for gate in gates:
        if gate.ops[0].name == program.op and gate.level == "definition":
            yield from ((gate, case) for case in gate.cases if case.quick and case.level in {None, "definition"})


def _settings(sample: Sample) -> dict[str, object]:
    plain = (str, int, float, bool)
    return {name: value for name, value in sample.inputs.items() if isinstance(value, plain)}
