"""Judge one planned case: draw its inputs, run the gate's check, and decide the verdict from its evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gates.errors import FaultError, scarce, sentence
from gates.model import (
    GRADE_OF,
    GRADES,
    Evidence,
    Grade,
    Level,
    Outcome,
    Recipe,
    Status,
    SubjectFaultError,
    UnsupportedError,
    Verdict,
    Wire,
)
from gates.nearest import nearest
from gates.provided import Provided
from gates.registry import REGISTRY
from gates.run.choices import chosen
from gates.run.inputs import drawn, with_model
from gates.run.observed import observed
from gates.run.oracle_cache import Answers, OracleCache
from gates.run.plain import plain
from gates.run.plan import Options, PlannedCase, seed_of
from gates.run.trial import Caller, OracleError, RunningTrial, Scratch
from gates.worker.process import Hello, WorkerError

IN_PART = "in part: "  # with this a subject's documentation explains a deviation only partly: it stays a failure
TIMEOUT = "timeout"  # status and cause: a call took longer than its case allows
BOOLEANS = (bool, np.bool_)


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, with what the worker reported about itself."""

    verdict: Verdict
    hello: Hello | None = None
    patched_calls: int = 0  # how often the mutated function ran
    models: Mapping[str, Mapping[str, Wire]] = field(default_factory=dict)  # content hash → spec
    seed: int | None = None  # of the planned case, if it has its own


def judge(
    planned: PlannedCase,
    caller: Caller,
    hello: Hello,
    options: Options,
    cached: OracleCache | None = None,
    answers: Answers | None = None,
) -> Verdict:
    """Return the verdict of one case; any exception of gate, oracle or subject becomes part of it.

    Without `answers` every call runs, even those of `Trial.got_once`.
    """
    gate, subject = planned.gate, planned.subject.name
    seed, unsupported = seed_of(planned, options), ""
    try:
        planned = chosen(planned, hello)
    except UnsupportedError as error:
        unsupported = str(error)
    level = planned.case.level or gate.level
    base = Verdict(
        gate.id,
        subject,
        planned.case.name,
        seed,
        "error",
        "nothing",
        "the gate measured nothing",
        op=gate.graded(planned.case),
        level=level,
    )
    if missing := unsupported or lacking(planned, hello):
        return replace(base, status="unsupported", cause="lacking", reason=missing)
    start = time.monotonic()
    evidence: list[Evidence] = []
    gave: set[str] = set()
    status: Status
    try:
        cached = cached or OracleCache()
        inputs, preconditions = drawn(gate, planned.case, seed, cached)
        evidence.extend(preconditions)
        with Scratch() as scratch:
            trial = RunningTrial(
                with_model(inputs, options.model),
                cached,
                gate,
                planned.case,
                declared(caller, subject, hello),
                scratch,
                not options.full,
                provides=hello.provides,
                once=None if answers is None else partial(answers.ask, subject),
                gave=gave,
            )
            for item in gate.check(trial):
                evidence.append(item)  # noqa: PERF402  keeps what was yielded before an exception
            evidence = observed(trial, evidence, hello)
        status, level, cause, reason = _decide(evidence, level)
    except UnsupportedError as error:
        status, cause, reason = "unsupported", "argument" if error.argument else "lacking", str(error)
    except SubjectFaultError as error:
        status = "timeout" if error.cause == TIMEOUT else _fault(error.cause, level, plain(gate, planned.case, inputs))
        cause, reason = error.cause, str(error)
    except OracleError as error:
        status, cause, reason = "error", "oracle", str(error)
    except WorkerError as error:
        status, cause, reason = "raises", "start", f"subject did not start again: {error}"
    except Exception as error:  # noqa: BLE001  any exception of a gate is the gate's error, and the run continues
        status, cause, reason = "error", "gate", _raised(error, f"{gate.id} · {planned.case.name}")
    if cause == "bound":  # only a wrong number can be deliberate, never an exception or a crash
        cause, reason = _documented(hello.documented.get(gate.name, "") if gate.name else "", reason)
    seconds = time.monotonic() - start
    return replace(
        base,
        status=status,
        level=level,
        cause=cause,
        reason=reason,
        evidence=tuple(evidence),
        seconds=round(seconds, 4),
        gave=frozenset(gave),
    )


def _raised(error: Exception, where: str) -> str:
    """Return the reason of a verdict on a gate that raised.

    Raises:
        FaultError: the machine lacks a resource, as it would for the next case.
    """
    if isinstance(error, FaultError):
        raise error
    if isinstance(error, OSError) and scarce(error):
        raise FaultError(sentence(f"cannot judge {where}: {error.filename or 'a file'}", error)) from None
    return f"the gate raised {type(error).__name__}: {error}"


def _fault(cause: str, level: Level, is_plain: bool) -> Grade:  # noqa: FBT001
    """Return the grade for an exception, a crash or a wrong shape; an exception is never a wrong formula.

    An exception outside plain cases costs no grade. At level precision a crash is `fragile`, not `imprecise`.
    """
    if cause == "raised":
        return "raises" if is_plain else "hardening"
    grade = GRADE_OF["robustness" if level == "precision" else level]
    return "raises" if cause == "crashed" and grade == "wrong" else grade


def _decide(evidence: list[Evidence], level: Level) -> tuple[Status, Level, str, str]:
    """Return status, level, cause and reason of a completed check: those of the worst claim that does not hold."""
    for item in evidence:
        if item.role == "signal" and not item.holds:
            return "error", level, "signal", f"precondition not met: {item.sentence()}"
    for item in evidence:
        if math.isnan(item.limit):
            return "error", level, "gate", f"the limit of {item.quantity} is NaN: {item.because}"
    failed = [item for item in evidence if not item.holds]
    if failed:
        worst = max(failed, key=lambda item: GRADES.index(GRADE_OF[item.level]))  # the first of the worst
        return GRADE_OF[worst.level], worst.level, "bound" if worst.role == "claim" else "control", worst.sentence()
    if not any(item.role == "claim" for item in evidence):
        return "error", level, "nothing", "the gate measured nothing"
    return "correct", level, "held", ""


def _documented(where: str, reason: str) -> tuple[str, str]:
    """Return cause and reason of a wrong number, whose deviation may be documented (`where`)."""
    if where and not where.startswith(IN_PART):
        return "departs", f"departs (documented: {where}): {reason}"
    return "bound", f"{reason}; documented {where}" if where else reason


def lacking(planned: PlannedCase, hello: Hello) -> str:
    """Return a sentence on the op or convention that the subject lacks for this case, or ""."""
    for op in planned.gate.ops:
        provided = hello.provides.get(op.name)
        if provided is None:
            near = nearest(op.name, hello.provides, cutoff=0.8)
            known = {other.name for gate in REGISTRY.gates.values() for other in gate.ops}  # not misspellings
            known |= {other.name for other in planned.gate.ops}
            hint = f"; it defines {near[0]}" if near and near[0] not in known else ""
            return f"{op.name} is not defined by {planned.subject.name}{hint}"
        if missing := _other_choice(planned, op.name, provided):
            return missing
    return ""


def _other_choice(planned: PlannedCase, op: str, provided: Provided) -> str:
    """Return a sentence on a convention of the case that the subject lacks or does not declare, or ""."""
    for name, value in planned.case.conventions.items():
        choices = provided.conventions.get(name)
        if choices is not None and not _among(value, choices):
            return f"{op} of {planned.subject.name} has {name} {_shown(choices)}, not {value!r}"
    if op != planned.gate.graded(planned.case).partition("[")[0]:
        return ""
    for name, value in planned.case.declared.items():
        if not _among(value, provided.conventions.get(name, ())):
            return f"{op} of {planned.subject.name} does not declare {name}=({value!r},), which this case is about"
    return ""


def _among(value: Wire, choices: tuple[Wire, ...]) -> bool:
    """Whether a value, or each of a tuple, is among the choices; True is not 1, numbers may be rounded to float32."""
    if isinstance(value, tuple):
        return all(_among(item, choices) for item in value)
    if isinstance(value, BOOLEANS) or value is None or isinstance(value, str):
        return any(
            value == choice and isinstance(choice, BOOLEANS) == isinstance(value, BOOLEANS) for choice in choices
        )
    if not isinstance(value, int | float | np.number):
        return value in choices
    numbers = [choice for choice in choices if isinstance(choice, int | float) and not isinstance(choice, bool)]
    return any(value == choice or np.float32(value) == np.float32(choice) for choice in numbers)


def _shown(choices: tuple[Wire, ...]) -> str:
    return ", ".join(repr(choice) for choice in choices)


def declared(caller: Caller, subject: str, hello: Hello) -> Caller:
    """Return a caller that answers `unsupported` to a choice that the subject did not declare.

    `lacking` checks the conventions of the case, but a check may make further choices, such as leave-one-out in addition
    to the mean, or another ε. Texts, numbers and booleans are checked.
    """

    def call(
        op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
    ) -> Outcome:
        provided = hello.provides.get(op)
        for name, choices in (provided.conventions if provided else {}).items():
            choice = inputs.get(name)
            if isinstance(choice, str | bool | int | float) and not _among(choice, choices):
                return Outcome("unsupported", error=f"{op} of {subject} has {name} {_shown(choices)}, not {choice!r}")
        return caller(op, inputs, layout, kill_after_s)

    return call
