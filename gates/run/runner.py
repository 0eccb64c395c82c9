"""Plans gate × subject × case, runs the plan on workers, and gives the verdicts: nobody else does."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gates.model import Case, Evidence, Gate, Outcome, Recipe, Status, Subject, Verdict, Wire
from gates.registry import REGISTRY
from gates.run import inputs as drawing
from gates.run.limits import Place
from gates.run.oracle_cache import OracleCache
from gates.run.trial import Caller, OracleError, RunningTrial, Scratch, SubjectFaultError, UnsupportedError
from gates.worker.process import Hello, WorkerError

if TYPE_CHECKING:
    from gates.run.engines.interface import Engine, Executor

IN_PART = "in part: "  # how a subject says that its documentation explains a departure only partly: still a failure
UNCALIBRATED = "uncalibrated"  # the cause of an error: the limit of a claim is recorded for other backends only


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One cell of the plan."""

    gate: Gate
    subject: Subject
    case: Case
    seed: int | None = None  # instead of the run's


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is run."""

    seed: int = 0
    jobs: int = 1
    threads: int = 1
    quick: bool = False
    full: bool = False  # all draws of statistical gates; without it a tenth
    model: str | None = None
    mutant: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what the worker said of itself and of the planted mistake while it was reached."""

    verdict: Verdict
    hello: Hello | None = None
    patched_calls: int = 0
    models: Mapping[str, Mapping[str, Wire]] = field(default_factory=dict)  # content hash → spec
    seed: int | None = None  # the job's own


def plan(gates: Iterable[Gate], subjects: Iterable[Subject], *, quick: bool) -> list[PlannedCase]:
    """Return every cell, the ones with the longest limits first, so that no worker is left alone with them in the end."""
    cells = [
        PlannedCase(gate, subject, case)
        for subject in subjects
        for gate in gates
        if subject.ops is None or all(op.name in subject.ops for op in gate.ops)
        for case in gate.cases
        if case.quick or not quick
    ]
    return sorted(cells, key=lambda job: -job.case.limit_s)


def case_seed(gate: Gate, case: Case, seed: int) -> int:
    """Return the seed of one case: a function of its names and the run's seed, so that selections change nothing."""
    return zlib.crc32(f"{gate.id}/{case.name}/{seed}".encode())


def seed_of(job: PlannedCase, options: Options) -> int:
    """Return the seed of a cell's case: of the run, unless the cell brings another."""
    return case_seed(job.gate, job.case, options.seed if job.seed is None else job.seed)


def run(jobs: list[PlannedCase], options: Options, engine: Engine | None = None) -> Iterator[Judged]:
    """Judge every cell and yield each verdict as it is reached. Closing the iterator ends all workers.

    `engine` makes the executor that judges; without one it is this machine's pool of workers.
    """
    with opened(options, engine) as executor:
        executor.submit(jobs)
        yield from executor.judged()


@contextmanager
def opened(options: Options, engine: Engine | None = None) -> Generator[Executor]:
    """Give an executor to which cells may be submitted again and again, and close it in the end."""
    from gates.run.engines.pool import Pool  # noqa: PLC0415  the pool judges by this module, which cannot import it first

    executor = (engine or Pool)(options)
    try:
        yield executor
    finally:
        executor.close()


def judge(
    job: PlannedCase,
    caller: Caller,
    hello: Hello,
    options: Options,
    answers: OracleCache | None = None,
) -> Verdict:
    """Reach the verdict of one cell, from what the check yields and what went wrong on the way."""
    seed = seed_of(job, options)
    base = Verdict(job.gate.id, job.subject.name, job.case.name, seed, "error", "nothing", "the gate measured nothing")
    if missing := lacking(job, hello):
        return replace(base, status="unsupported", cause="lacking", reason=missing)
    start = time.monotonic()
    evidence: list[Evidence] = []
    status: Status
    try:
        answers = answers or OracleCache()
        inputs = with_model(drawing.inputs(job.gate, job.case, seed, answers), options.model)
        with Scratch() as scratch:
            trial = RunningTrial(
                job.gate,
                job.case,
                inputs,
                declared(caller, job.subject.name, hello),
                scratch,
                not options.full,
                place=Place.of(hello.versions),
                answers=answers,
            )
            for item in job.gate.check(trial):
                evidence.append(item)  # noqa: PERF402  what was yielded before an exception is kept
        status, cause, reason = _decide(evidence)
    except UnsupportedError as error:
        status, cause, reason = "unsupported", "lacking", str(error)
    except SubjectFaultError as error:
        status, cause, reason = "fail", error.cause, str(error)
    except OracleError as error:
        status, cause, reason = "error", "oracle", str(error)
    except WorkerError as error:
        status, cause, reason = "fail", "start", f"subject did not start again: {error}"
    except Exception as error:  # noqa: BLE001  whatever a gate raises is the gate's error, and the run goes on
        status, cause, reason = "error", "gate", f"the gate raised {type(error).__name__}: {error}"
    documented = hello.documented.get(job.gate.name) if job.gate.name else None
    if status == "fail" and cause == "bound" and documented:  # an exception or a crash is nobody's choice
        if documented.startswith(IN_PART):
            reason = f"{reason}; documented {documented}"
        else:
            cause, reason = "departs", f"departs (documented: {documented}): {reason}"
    seconds = time.monotonic() - start
    return replace(base, status=status, cause=cause, reason=reason, evidence=tuple(evidence), seconds=round(seconds, 4))


def _decide(evidence: list[Evidence]) -> tuple[Status, str, str]:
    for item in evidence:
        if item.role == "signal" and not item.holds:
            return "error", "signal", f"no signal: {item.sentence()}"
    for item in evidence:
        if math.isnan(item.limit):  # nobody has measured what the limit is here, so nothing can be said
            return "error", UNCALIBRATED, item.because
    for item in evidence:
        if not item.holds:
            return "fail", "bound" if item.role == "claim" else "control", item.sentence()
    if not any(item.role == "claim" for item in evidence):
        return "error", "nothing", "the gate measured nothing"
    return "pass", "held", ""


def lacking(job: PlannedCase, hello: Hello) -> str:
    """Return what a subject does not have of what a cell asks, or nothing."""
    for op in job.gate.ops:
        provided = hello.provides.get(op.name)
        if provided is None:
            near = get_close_matches(op.name, hello.provides, 1, 0.8)
            known = {other.name for gate in REGISTRY.gates.values() for other in gate.ops}  # no misspelt ones
            known |= {other.name for other in job.gate.ops}
            hint = f"; it defines {near[0]}" if near and near[0] not in known else ""
            return f"{op.name} is not defined by {job.subject.name}{hint}"
        for name, value in job.case.conventions.items():
            choices = provided.conventions.get(name)
            if choices is not None and value not in choices:
                shown = ", ".join(repr(choice) for choice in choices)
                return f"{op.name} of {job.subject.name} has {name} {shown}, not {value!r}"
    return ""


def declared(caller: Caller, subject: str, hello: Hello) -> Caller:
    """Return a caller that refuses a choice which the subject did not declare.

    The case's own conventions were looked at before, but a law asks for another choice beside them (leave-one-out beside
    the mean), and a subject that never said it has that must not be blamed for it. Choices are texts; of numbers, such
    as ε, a check may take any.
    """

    def ask(
        op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
    ) -> Outcome:
        provided = hello.provides.get(op)
        for name, choices in (provided.conventions if provided else {}).items():
            value = inputs.get(name)
            if isinstance(value, str) and value not in choices:
                shown = ", ".join(repr(choice) for choice in choices)
                return Outcome("unsupported", error=f"{op} of {subject} has {name} {shown}, not {value!r}")
        return caller(op, inputs, layout, kill_after_s)

    return ask


def with_model(inputs: Mapping[str, Wire | Recipe], model: str | None) -> Mapping[str, Wire | Recipe]:
    """Return a case's inputs with the user's model in the place of the tiny one."""
    if model is None:
        return inputs
    return {
        name: Recipe("model", {"path": model}) if isinstance(value, Recipe) and value.kind == "model" else value
        for name, value in inputs.items()
    }
