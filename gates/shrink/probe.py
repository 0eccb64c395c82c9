"""Judge a subject with a gate on the many inputs of a search."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np

from gates.model import (
    GRADE_OF,
    GRADES,
    Case,
    Evidence,
    Gate,
    Outcome,
    Recipe,
    Subject,
    SubjectFaultError,
    UnsupportedError,
    Wire,
)
from gates.run import time_limits
from gates.run.choices import chosen
from gates.run.judge import lacking
from gates.run.observed import observed
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase
from gates.run.trial import Comparison, OracleError, RunningTrial, Scratch
from gates.shrink import rollout_cut
from gates.worker.process import Hello, Worker, WorkerError


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the subject and its outcome.

    Attributes:
        op: the op that was called.
        inputs: the arguments of the op's definition.
        layout: the memory layouts of arrays that have another one than their own.
        outcome: what came back.
        omitted: the inputs that the subject's function has no argument for; see `Provided`.
    """

    op: str
    inputs: Mapping[str, Wire | Recipe]
    layout: Mapping[str, str]
    outcome: Outcome
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict of a gate on some inputs.

    `kind` is the type of the failure, which keeps a search on one bug. Preconditions are only reported, because a failure
    does not require them.
    """

    state: Literal["fails", "holds", "unclear", "unsupported"]
    kind: str
    reason: str
    failing: Evidence | None = None
    preconditions_hold: bool = True
    calls: tuple[Call, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    def same_failure(self, answer: Answer) -> bool:
        """Return whether both are failures of the same type."""
        return self.state == answer.state == "fails" and self.kind == answer.kind


@dataclass(slots=True)
class Asker:
    """Judges a subject repeatedly, with a new worker after each crash. Close it after use."""

    subject: Subject
    threads: int = 1
    mutant: Mapping[str, str] | None = None
    quick: bool = True
    deadline: float = math.inf  # in time.monotonic(), for every call
    time_limit: float | None = None  # seconds of each call; None: those of its case
    time_limit_option: str = ""  # the option that sets `time_limit`, which messages name
    worker: Worker | None = field(default=None, init=False)

    def ask(self, gate: Gate, case: Case, inputs: Mapping[str, Any], cut: Mapping[str, Any] | None = None) -> Answer:
        """Judge the subject on these inputs, each rollout limited by the cut.

        Raises:
            WorkerError: the subject does not start.
        """
        worker = self.alive()
        try:
            planned = chosen(PlannedCase(gate, self.subject, case), worker.hello)
        except UnsupportedError as error:
            return Answer("unsupported", "lacking", str(error))
        if missing := lacking(planned, worker.hello):
            return Answer("unsupported", "lacking", missing)
        calls: list[Call] = []

        def caller(
            op: str, arguments: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
        ) -> Outcome:
            arguments = rollout_cut.less(arguments, cut or {})
            limit = time_limits.TimeLimit.of(case, Options(time_limit=self.time_limit))
            left = max(0.0, self.deadline - time.monotonic())
            seconds = min(kill_after_s or limit.seconds, left)
            more = 0.0 if kill_after_s else min(limit.first_more, left - seconds)
            remedy = time_limits.remedy("" if kill_after_s else self.time_limit_option)
            try:
                outcome = self.alive().call(
                    op, arguments, limit_s=seconds, layout=layout, first_more_s=more, remedy=remedy
                )
            except KeyboardInterrupt:
                self.close()  # the worker is in the middle of a call
                raise
            calls.append(Call(op, arguments, layout, outcome, worker.omitted(op, arguments)))
            return outcome

        evidence: list[Evidence] = []
        with Scratch() as scratch:
            trial = RunningTrial(
                inputs, OracleCache(), gate, case, caller, scratch, self.quick, provides=worker.hello.provides
            )
            state, kind, reason, failing = _run(gate, trial, evidence, worker.hello)
        preconditions = all(item.holds for item in evidence if item.role == "signal")
        return Answer(state, kind, reason, failing, preconditions, tuple(calls), tuple(trial.comparisons))

    def close(self) -> None:
        """End the worker."""
        if self.worker is not None:
            self.worker.close()

    def alive(self) -> Worker:
        """Return a worker that accepts calls.

        Raises:
            WorkerError: the subject does not start.
        """
        if self.worker is None or not self.worker.alive:
            self.close()
            self.worker = Worker.start(self.subject, threads=self.threads, mutant=self.mutant)
        return self.worker


BEGINNING = 3  # first words of an exception; later words may hold values that the search changes
SIZE = re.compile(r"(?<=[\[( ])\d+(?=[,\])])")  # in `float64[8, 16]` or `(12,)`; the number of axes is kept
Decision = tuple[Literal["fails", "holds", "unclear", "unsupported"], str, str, Evidence | None]


def _run(gate: Gate, trial: RunningTrial, evidence: list[Evidence], hello: Hello) -> Decision:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gate may divide by a number that is zero only on shrunk inputs
            for item in chain(gate.requires(trial), gate.check(trial)):
                evidence.append(item)  # noqa: PERF402  keeps what was yielded before an exception
            evidence[:] = observed(trial, evidence, hello)
    except SubjectFaultError as error:
        return "fails", f"{error.cause} {_kind_of(str(error))}", str(error), None
    except WorkerError as error:
        return "fails", "start", f"subject did not start again: {error}", None
    except UnsupportedError as error:
        return "unsupported", "lacking", str(error), None
    except Exception as error:  # noqa: BLE001  a gate may not support a smaller input
        kind = "oracle" if isinstance(error, OracleError) else "gate"
        return "unclear", kind, f"the {kind} raised {type(error).__name__}: {error}", None
    return _decide(evidence)


def _decide(evidence: list[Evidence]) -> Decision:
    failed = [item for item in evidence if item.role != "signal" and not item.holds]
    if failed:
        worst = max(
            failed, key=lambda item: GRADES.index(GRADE_OF[item.level])
        )  # the first of the worst, as in the verdict
        nan = " NaN" if math.isnan(worst.observed) else ""  # such as 0/0 with one reward, unlike a wrong formula
        return "fails", f"{worst.role} {worst.level}{nan}", worst.sentence(), worst
    if not any(item.role == "claim" for item in evidence):
        return "unclear", "nothing", "the gate measured nothing", None
    return "holds", "", "", None


def _kind_of(reason: str) -> str:
    """Return op, exception and the first words of `op raised: ValueError: message`, without numbers.

    Sizes, as in `gradient is float64[8, 16], must be float32[8, 16]`, are removed because a search changes them.
    """
    op, exception, message = (*SIZE.sub("#", reason).split(":", 2), "", "")[:3]
    return f"{op}:{exception}:{re.sub('[0-9]+', '#', ' '.join(message.split()[:BEGINNING]))}"
