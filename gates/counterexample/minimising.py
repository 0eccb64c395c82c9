"""Makes a failing cell of a run small: the subject must go on failing where a subject known to be right holds."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gates.counterexample.asking import Answer, Asker
from gates.counterexample.file import Counterexample, write
from gates.counterexample.moves import elements
from gates.counterexample.nesting import flat
from gates.counterexample.shrinking import shrink
from gates.counterexample.words import describe
from gates.model import Case, Gate, Recipe, Subject, Verdict
from gates.protocol import WorkerError
from gates.runner import Job, Options, case_seed

BUDGET_S = 20.0  # seconds for each failure
MOST = 3  # failures of a run that are made small: the first of each gate and subject
WITNESSES = ("numpy", "rlkernels", "reference")  # who may show that a candidate is a fair question
CAUSES = frozenset(("bound", "control", "shape", "raised", "crashed"))  # a hang takes its whole limit at each try


class CannotMinimiseError(Exception):
    """This failure has no inputs that can be made smaller; the message says why."""


def reason_against(job: Job, verdict: Verdict) -> str:
    """Return why a failure cannot be made small, or nothing."""
    if verdict.cause not in CAUSES:
        return f"a failure by {verdict.cause} is not tried again and again"
    inputs = job.case.make(np.random.default_rng(verdict.seed))
    table = flat(inputs)
    if any(isinstance(value, Recipe) for value in table.values()):
        return "its inputs are a model or a data set, not arrays"
    if not any(isinstance(value, np.ndarray) for value in table.values()):
        return "its inputs hold no arrays"
    return ""


def minimise(
    job: Job,
    options: Options,
    subjects: Mapping[str, Subject],
    *,
    budget_s: float = BUDGET_S,
    tool: str = "",
) -> Counterexample:
    """Return the smallest input found on which this cell fails.

    Raises:
        CannotMinimiseError: the failure does not come again, or a subject known to be right fails too.
    """
    start = time.monotonic()
    seed = case_seed(job.gate, job.case, options.seed)
    inputs = dict(job.case.make(np.random.default_rng(seed)))
    case = replace(job.case, limit_s=min(job.case.limit_s, budget_s))
    asker = Asker(job.subject, options.threads, options.mutant, quick=not options.full)
    witness: Asker | None = None
    try:
        first = asker.ask(job.gate, case, inputs)
        if first.state != "fails":
            raise CannotMinimiseError(f"asked again it does not fail: {first.state} {first.reason}")
        witness = _witness(job, case, inputs, options, subjects)

        def fails(candidate: dict[str, Any]) -> bool:
            return _fails(job.gate, case, candidate, asker, witness, first)

        found = shrink(
            inputs,
            fails,
            budget_s - (time.monotonic() - start),
            settled=frozenset(case.conventions),
            optional=frozenset(name for op in job.gate.ops for name, words in op.inputs.items() if "None" in words),
        )
        last = asker.ask(job.gate, case, found.inputs)
    except WorkerError as error:
        raise CannotMinimiseError(str(error)) from None
    finally:
        asker.close()
        if witness:
            witness.close()
    if last.state != "fails":
        raise CannotMinimiseError("the failure comes and goes on the same inputs")
    return Counterexample(
        gate=job.gate.id,
        case=job.case.name,
        seed=seed,
        subject=job.subject.name,
        entry=str(job.subject.entry),
        kind=last.kind,
        reason=last.reason,
        words=describe(last, job.gate.ops, found.inputs),
        elements_before=elements(inputs),
        elements_after=elements(found.inputs),
        finished=found.finished,
        judged_beside=witness.subject.name if witness else None,
        quick=not options.full,
        tool=tool,
        inputs=found.inputs,
    )


def _fails(
    gate: Gate, case: Case, candidate: dict[str, Any], asker: Asker, witness: Asker | None, like: Answer
) -> bool:
    """Whether a candidate fails as the original does and is a fair question.

    A candidate may lose the signals by which a pass would mean something; a failure needs none where a right subject
    holds on the same inputs. Where nobody can show that, the signals have to stay.
    """
    answer = asker.ask(gate, case, candidate)
    if not answer.same_failure(like):
        return False
    return answer.signals_hold if witness is None else witness.ask(gate, case, candidate).state == "holds"


def _witness(
    job: Job, case: Case, inputs: Mapping[str, Any], options: Options, subjects: Mapping[str, Subject]
) -> Asker | None:
    """Return a shipped subject, without mistakes planted, that holds where this one fails."""
    for name in WITNESSES:
        if name not in subjects or (name == job.subject.name and not options.mutant):
            continue
        asker = Asker(subjects[name], options.threads, quick=not options.full)
        try:
            if asker.ask(job.gate, case, inputs).state == "holds":
                return asker
        except WorkerError:
            pass  # not installed here: the next may be
        asker.close()
    return None


@dataclass(slots=True)
class Minimiser:
    """Collects the failures of a run, and makes the first few small when all is judged."""

    jobs: list[Job]
    options: Options
    subjects: Mapping[str, Subject]
    folder: Path
    tool: str = ""
    failures: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    order: dict[tuple[str, str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = {(job.gate.id, job.subject.name, job.case.name): n for n, job in enumerate(self.jobs)}

    def note(self, verdict: Verdict) -> None:
        """Keep the failure of each gate and subject that is first in the plan; a documented departure is none to chase."""
        if verdict.status == "fail" and verdict.cause not in {"start", "departs"}:
            known = self.failures.setdefault((verdict.gate, verdict.subject), verdict)
            if self._place(verdict) < self._place(known):
                self.failures[verdict.gate, verdict.subject] = verdict

    def run(self) -> Iterable[tuple[Verdict, Counterexample | None, Path | None, str]]:
        """Yield each failure with its counterexample and file, or with why there is none."""
        made = 0
        for verdict in sorted(self.failures.values(), key=self._place):
            job = self.jobs[self._place(verdict)]
            if made == MOST:
                yield verdict, None, None, f"only the first {MOST} failures of a run are minimised"
                continue
            if reason := reason_against(job, verdict):
                yield verdict, None, None, reason
                continue
            made += 1
            try:
                found = minimise(job, self.options, self.subjects, tool=self.tool)
            except CannotMinimiseError as error:
                yield verdict, None, None, str(error)
                continue
            path = self.folder / f"{_plain(verdict.gate)}-{_plain(verdict.subject)}.safetensors"
            write(path, found)
            yield verdict, found, path, ""

    def _place(self, verdict: Verdict) -> int:
        return self.order[verdict.gate, verdict.subject, verdict.case]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.@-]", "_", name)
