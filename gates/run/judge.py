"""Judge one planned case: draw its inputs, run the gate's check, and decide the verdict from its evidence."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from gates.errors import FaultError, scarce, sentence
from gates.model import Evidence, Outcome, Recipe, Status, SubjectFaultError, UnsupportedError, Verdict, Wire
from gates.registry import REGISTRY
from gates.run.inputs import inputs, with_model
from gates.run.limits import Place
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase, seed_of
from gates.run.trial import Caller, OracleError, RunningTrial, Scratch
from gates.worker.process import Hello, WorkerError

IN_PART = "in part: "  # with this a subject's documentation explains a deviation only partly: it stays a failure
UNCALIBRATED = "uncalibrated"  # the cause of an error: the limit of a claim is recorded for other backends only
TIMEOUT = "timeout"  # the cause of a failure: a call took longer than its case allows


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, with what the worker reported of itself while it was reached."""

    verdict: Verdict
    hello: Hello | None = None
    patched_calls: int = 0  # how often the mutated function ran
    models: Mapping[str, Mapping[str, Wire]] = field(default_factory=dict)  # content hash → spec
    seed: int | None = None  # the planned case's own


def judge(
    planned: PlannedCase,
    caller: Caller,
    hello: Hello,
    options: Options,
    cached: OracleCache | None = None,
) -> Verdict:
    """Return the verdict of one case. Whatever the gate, the oracle or the subject raises becomes part of it."""
    gate, subject = planned.gate, planned.subject.name
    seed = seed_of(planned, options)
    base = Verdict(gate.id, subject, planned.case.name, seed, "error", "nothing", "the gate measured nothing")
    if missing := lacking(planned, hello):
        return replace(base, status="unsupported", cause="lacking", reason=missing)
    start = time.monotonic()
    evidence: list[Evidence] = []
    status: Status
    try:
        cached = cached or OracleCache()
        drawn = with_model(inputs(gate, planned.case, seed, cached), options.model)
        with Scratch() as scratch:
            trial = RunningTrial(
                gate,
                planned.case,
                drawn,
                declared(caller, subject, hello),
                scratch,
                not options.full,
                place=Place.of(hello.versions),
                cached=cached,
            )
            for item in gate.check(trial):
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
        status, cause, reason = "error", "gate", _raised(error, f"{gate.id} · {planned.case.name}")
    if status == "fail" and cause == "bound":  # only a wrong number can be a deliberate choice: no exception, no crash
        cause, reason = _documented(hello.documented.get(gate.name, "") if gate.name else "", reason)
    seconds = time.monotonic() - start
    return replace(base, status=status, cause=cause, reason=reason, evidence=tuple(evidence), seconds=round(seconds, 4))


def _raised(error: Exception, where: str) -> str:
    """Return the reason of a verdict on a gate that raised.

    Raises:
        FaultError: the machine has too little of something, which the next case would lack too.
    """
    if isinstance(error, FaultError):
        raise error
    if isinstance(error, OSError) and scarce(error):
        raise FaultError(sentence(f"cannot judge {where}: {error.filename or 'a file'}", error)) from None
    return f"the gate raised {type(error).__name__}: {error}"


def _decide(evidence: list[Evidence]) -> tuple[Status, str, str]:
    """Return status, cause and reason of a check that ran to its end."""
    for item in evidence:
        if item.role == "signal" and not item.holds:
            return "error", "signal", f"precondition not met: {item.sentence()}"
    for item in evidence:
        if math.isnan(item.limit):  # no limit was ever measured for this backend
            return "error", UNCALIBRATED, item.because
    for item in evidence:
        if not item.holds:
            return "fail", "bound" if item.role == "claim" else "control", item.sentence()
    if not any(item.role == "claim" for item in evidence):
        return "error", "nothing", "the gate measured nothing"
    return "pass", "held", ""


def _documented(where: str, reason: str) -> tuple[str, str]:
    """Return cause and reason of a wrong number, whose deviation the subject may document."""
    if where and not where.startswith(IN_PART):
        return "departs", f"departs (documented: {where}): {reason}"
    return "bound", f"{reason}; documented {where}" if where else reason


def lacking(planned: PlannedCase, hello: Hello) -> str:
    """Return which op or convention of the case the subject does not provide, or nothing."""
    for op in planned.gate.ops:
        provided = hello.provides.get(op.name)
        if provided is None:
            near = get_close_matches(op.name, hello.provides, 1, 0.8)
            known = {other.name for gate in REGISTRY.gates.values() for other in gate.ops}  # these are not misspelt
            known |= {other.name for other in planned.gate.ops}
            hint = f"; it defines {near[0]}" if near and near[0] not in known else ""
            return f"{op.name} is not defined by {planned.subject.name}{hint}"
        for name, value in planned.case.conventions.items():
            choices = provided.conventions.get(name)
            if choices is not None and value not in choices:
                shown = ", ".join(repr(choice) for choice in choices)
                return f"{op.name} of {planned.subject.name} has {name} {shown}, not {value!r}"
    return ""


def declared(caller: Caller, subject: str, hello: Hello) -> Caller:
    """Return a caller that answers `unsupported` to a choice which the subject did not declare.

    `lacking` looks at the conventions of the case, but a check may use another choice beside them (leave-one-out beside
    the mean). Only choices given as text are compared: a number such as ε may have any value.
    """

    def call(
        op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
    ) -> Outcome:
        provided = hello.provides.get(op)
        for name, choices in (provided.conventions if provided else {}).items():
            value = inputs.get(name)
            if isinstance(value, str) and value not in choices:
                shown = ", ".join(repr(choice) for choice in choices)
                return Outcome("unsupported", error=f"{op} of {subject} has {name} {shown}, not {value!r}")
        return caller(op, inputs, layout, kill_after_s)

    return call
