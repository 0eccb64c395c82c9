"""Identify what an op of a subject computes when nothing is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.diagnosis import samples
from gates.diagnosis.diagnose import identify
from gates.diagnosis.named import Diagnosis
from gates.families.program import Inputs, Program, Sample
from gates.model import Case, Gate, Subject, UnsupportedError
from gates.provided import NEUTRAL, asks
from gates.run.choices import chosen
from gates.run.judge import lacking
from gates.run.plan import PlannedCase, case_seed
from gates.worker.process import Worker

TRIES = 12  # cases whose settings are tried until the subject answers


@dataclass(frozen=True, slots=True)
class Identified:
    """What one op computes.

    Attributes:
        op: its name.
        diagnosis: its diagnosis; None if the subject answered too few calls.
        settings: the scalar and text arguments of the calls.
        inputs: number of designed calls that were answered.
        reason: why there is no diagnosis.
        untried: what no call gave: arguments of the function that had their neutral value, and a row without tokens.
    """

    op: str
    diagnosis: Diagnosis | None
    settings: Mapping[str, object]
    inputs: int
    reason: str = ""
    untried: tuple[str, ...] = ()


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
        for example in _examples(program, gates, subject, worker):
            answered = samples.ask(program, worker, example)
            if len(answered) >= samples.LEAST:
                diagnosis, untried = identify(program, answered), _untried(program, answered, gates, worker)
                return Identified(program.op, diagnosis, _settings(answered[0]), len(answered), untried=untried)
            if not worker.alive:
                worker = Worker.start(subject, threads=threads)
    finally:
        worker.close()
    return Identified(program.op, None, {}, 0, f"{subject.name} answered none of the calls of {program.op}")


def _examples(program: Program, gates: Iterable[Gate], subject: Subject, worker: Worker) -> Iterator[Inputs]:
    """Yield example calls of cases that the subject supports, those with a KL first because they reveal more."""
    examples: list[Inputs] = []
    for gate, case in _cases(program, gates):
        planned = _chosen(PlannedCase(gate, subject, case), worker)
        if len(examples) < TRIES and planned is not None and not lacking(planned, worker.hello):
            example = samples.example(gate, planned.case, case_seed(gate, case, 0), program.op)
            examples += [] if example is None else [example]
    for example in sorted(examples, key=lambda inputs: not inputs.get("beta")):
        yield from program.examples(example)


def _chosen(planned: PlannedCase, worker: Worker) -> PlannedCase | None:
    try:
        return chosen(planned, worker.hello)
    except UnsupportedError:
        return None


def _cases(program: Program, gates: Iterable[Gate]) -> Iterator[tuple[Gate, Case]]:
    for gate in gates:
        if gate.ops[0].name == program.op and gate.level == "definition":
            yield from ((gate, case) for case in gate.cases if case.quick and case.level in {None, "definition"})


def _untried(program: Program, answered: Sequence[Sample], gates: Iterable[Gate], worker: Worker) -> tuple[str, ...]:
    """Return what no call gave: arguments that the function has, and rows without tokens."""
    op = next(gate.main for gate in gates if gate.main.name == program.op)
    provided = worker.hello.provides[program.op]
    declared = provided.conventions
    names = [
        name
        for name in op.inputs
        if (name in NEUTRAL or name in op.optional) and name not in op.settings and not provided.lacks(name)
        if {*declared.get(name, (0, 1))} - {None} != set()
    ]
    untried = [name for name in names if not any(asks(name, sample.inputs.get(name)) for sample in answered)]
    masks = [sample.inputs["mask"] for sample in answered if sample.inputs.get("mask") is not None]
    if masks and all(np.asarray(mask).any(axis=1).all() for mask in masks):
        untried.append("a row without tokens")
    return tuple(untried)


def _settings(sample: Sample) -> dict[str, object]:
    plain = (str, int, float, bool)
    return {name: value for name, value in sample.inputs.items() if isinstance(value, plain)}
