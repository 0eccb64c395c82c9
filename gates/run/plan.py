"""The plan of a run: every gate × subject × case, the seed of each, and the options that they share."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from gates.model import Case, Gate, Subject

Names = tuple[str, str, str]
"""The names of a planned case: gate, subject, case."""


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One gate × subject × case that a run judges."""

    gate: Gate
    subject: Subject
    case: Case
    seed: int | None = None  # overrides the run's

    @property
    def names(self) -> Names:
        """The names of gate, subject and case, which identify its verdict."""
        return self.gate.id, self.subject.name, self.case.name


@dataclass(frozen=True, slots=True)
class Options:
    """The options of every case of a run."""

    seed: int = 0
    jobs: int = 1  # parallel threads, each with its own workers
    threads: int = 1  # of each worker
    quick: bool = False
    full: bool = False  # all draws of statistical gates; without it a tenth
    model: str | None = None
    time_limit: float | None = None  # seconds of every call; None: those of its case
    time_limit_option: str = ""  # the option that sets `time_limit`, which messages name
    most_timeouts: int = 0  # of an op of a subject, after which its other cases are not asked; 0: all are
    mutant: Mapping[str, str] | None = None  # the patch target and the patch that each worker applies


def cases_of(gate: Gate, model: str | None) -> list[Case]:
    """Return the cases of a gate; with `--model`, one for all that differ only in the tiny model, named after the model."""
    if model is None:
        return list(gate.cases)
    label = PurePath(model).name
    cases: dict[str, Case] = {}
    for case in sorted(gate.cases, key=lambda case: (not case.quick, not case.proof)):
        name = case.name.replace(case.model, label) if case.model else case.name
        cases.setdefault(name, replace(case, name=name))
    return list(cases.values())


def plan(
    gates: Iterable[Gate],
    subjects: Iterable[Subject],
    *,
    quick: bool,
    proof: bool = False,
    model: str | None = None,
) -> list[PlannedCase]:
    """Return the cases, longest time limit first, so that no single worker is still busy at the end.

    Args:
        gates: the gates whose cases are planned.
        subjects: the subjects to judge.
        quick: the quick cases only.
        proof: with `quick`, also the cases that a proof or a calibration needs.
        model: replaces the tiny model.
    """
    cases = [
        PlannedCase(gate, subject, case)
        for subject in subjects
        for gate in gates
        if subject.ops is None or all(op.name in subject.ops for op in gate.ops)
        for case in cases_of(gate, model)
        if not quick or case.quick or (proof and case.proof)
    ]
    return sorted(cases, key=lambda planned: -planned.case.limit_s)


def runs_a_model(gate: Gate) -> bool:
    """Whether the gate asks for a model by a recipe, so that the subject samples from it or trains it for seconds."""
    return any("model" in op.inputs for op in gate.ops)


def case_seed(gate: Gate, case: Case, seed: int) -> int:
    """Return the seed of one case, which depends on its names and the run's seed, not on the selected gates."""
    return zlib.crc32(f"{case.sample or f'{gate.id}/{case.name}'}/{seed}".encode())


def seed_of(planned: PlannedCase, options: Options) -> int:
    """Return the seed of a planned case's inputs."""
    return case_seed(planned.gate, planned.case, options.seed if planned.seed is None else planned.seed)
