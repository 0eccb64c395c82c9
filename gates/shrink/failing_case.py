"""Shrink one failing case: on each smaller input the subject must fail and a trusted subject must pass."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gates.config.own_subjects import OWN
from gates.model import RECORDED, Gate, Subject, Verdict
from gates.run import inputs as drawing
from gates.run.choices import chosen
from gates.run.inputs import with_model
from gates.run.plan import Options, PlannedCase, seed_of
from gates.shrink import rollout_cut
from gates.shrink.describe import describe
from gates.shrink.file import Counterexample
from gates.shrink.greedy import shrink
from gates.shrink.moves import elements, items
from gates.shrink.probe import Answer, Asker
from gates.worker.process import WorkerError

BUDGET_S = 60.0  # seconds for each failure
CAUSES = frozenset(("bound", "control", "shape", "value", "raised", "crashed"))
#: Gates with claims about a distribution, a share of time or many steps. With fewer draws or steps correct subjects fail
#: by chance too, so the preconditions must hold on every smaller input. Claims with an exact limit, such as no draws of
#: probability 0, do not depend on chance.
STATISTICAL = frozenset(
    (
        "rollout.draws.follow-distribution",
        "rollout.early-ends-save-time",
        "rollout.quantised.within-ratio",
        "trainer.no-spikes",
    )
)


class CannotShrinkError(Exception):
    """No smaller input was found; the message says why."""


@dataclass(slots=True)
class Progress:
    """Callbacks for the progress of a search; `stopped` is set when Ctrl-C ends it."""

    stopped: bool = field(default=False, init=False)

    def start(self, where: str) -> None:
        """Begin the next failure."""

    def smaller(self, size: str) -> None:
        """Report a smaller input that fails: `500 → 12 tokens`."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an input: tokens of all calls if a model runs, else number of texts, else of array elements."""

    number: int
    unit: str

    @classmethod
    def of(cls, answer: Answer, inputs: Mapping[str, Any]) -> Size:
        """Return the size of the inputs and of the calls that a gate made with them."""
        if tokens := rollout_cut.tokens(call.inputs for call in answer.calls):
            return cls(tokens, "tokens")
        if texts := sum(map(len, items(inputs))):
            return cls(texts, "texts")
        return cls(elements(inputs), "numbers")


def shrink_case(
    planned: PlannedCase,
    options: Options,
    subjects: Mapping[str, Subject],
    *,
    budget_s: float = BUDGET_S,
    tool: str = "",
    progress: Progress | None = None,
) -> Counterexample:
    """Return the smallest failing input found within the budget; Ctrl-C ends the search early.

    Raises:
        CannotShrinkError: the failure cannot be reproduced, or one trial takes longer than the budget.
    """
    if any(op.name in RECORDED for op in planned.gate.ops):
        raise CannotShrinkError("every trial trains a model, and the input is small; `gates xray` shows such an update")
    progress = progress or Progress()
    deadline = time.monotonic() + budget_s
    seed = seed_of(planned, options)
    asker = Asker(
        planned.subject,
        options.threads,
        options.mutant,
        quick=not options.full,
        deadline=deadline,
        time_limit=options.time_limit,
    )
    trusted: Asker | None = None
    try:
        planned = chosen(planned, asker.alive().hello)
        inputs = dict(with_model(drawing.inputs(planned.gate, planned.case, seed), options.model))
        start = time.monotonic()
        first = asker.ask(planned.gate, planned.case, inputs)
        once = time.monotonic() - start
        if time.monotonic() >= deadline:
            raise CannotShrinkError(f"one trial takes longer than the budget of {budget_s:g} s")
        if first.state != "fails":
            raise CannotShrinkError(f"it did not fail again: {first.state} {first.reason}")
        before = Size.of(first, inputs)
        cut = rollout_cut.largest(call.inputs for call in first.calls)
        first = replace(first, calls=(), comparisons=())  # frees the outputs of a model, which are large
        trusted = _trusted(planned, inputs, options, subjects, deadline)
        search = _Fails(planned, asker, trusted, first, before, progress)
        shrunk = shrink(
            {**inputs, rollout_cut.CUT: cut} if cut else inputs,
            search,
            deadline - time.monotonic() - once,  # reserve time to judge the result again
            settled=frozenset(planned.case.conventions),
            optional=frozenset(
                name for op in planned.gate.ops for name, description in op.inputs.items() if "None" in description
            ),
        )
        progress.stopped = shrunk.end == "stopped"
        smallest, cut = rollout_cut.cut_of(shrunk.inputs)
        asker.deadline = math.inf
        last = asker.ask(planned.gate, planned.case, smallest, cut)
    except WorkerError as error:
        raise CannotShrinkError(str(error)) from None
    except KeyboardInterrupt:
        progress.stopped = True
        raise CannotShrinkError("it was stopped before anything smaller was found") from None
    finally:
        asker.close()
        if trusted:
            trusted.close()
    if last.state != "fails":
        raise CannotShrinkError("the failure comes and goes on the same inputs")
    return Counterexample(
        gate=planned.gate.id,
        case=planned.case.name,
        seed=seed,
        subject=planned.subject.name,
        entry=str(planned.subject.entry),
        kind=last.kind,
        reason=last.reason,
        words=describe(last, planned.gate.ops, smallest, cut) + _why_no_smaller(planned.gate, trusted, last),
        elements_before=before.number,
        elements_after=Size.of(last, smallest).number,
        unit=before.unit,
        finished=shrunk.end == "smallest",
        judged_beside=trusted.subject.name if trusted else None,
        quick=not options.full,
        tool=tool,
        inputs=smallest,
        cut=cut,
    )


def as_drawn(planned: PlannedCase, verdict: Verdict, options: Options, tool: str) -> Counterexample:
    """Return the inputs of a failing case as drawn, not shrunk."""
    if planned.gate.main.axes:
        asker = Asker(planned.subject, options.threads, options.mutant)
        try:
            planned = chosen(planned, asker.alive().hello)
        finally:
            asker.close()
    inputs = dict(with_model(drawing.inputs(planned.gate, planned.case, verdict.seed), options.model))
    return Counterexample(
        gate=planned.gate.id,
        case=planned.case.name,
        seed=verdict.seed,
        subject=planned.subject.name,
        entry=str(planned.subject.entry),
        kind=verdict.cause,
        reason=verdict.reason,
        words=verdict.reason,
        elements_before=elements(inputs),
        elements_after=elements(inputs),
        unit="numbers",
        finished=False,
        judged_beside=None,
        quick=not options.full,
        tool=tool,
        inputs=inputs,
        cut={},
    )


@dataclass(frozen=True, slots=True)
class _Fails:
    """Decide whether a candidate is legal and fails like the original.

    Preconditions make a pass meaningful. A failure does not need them if a trusted subject passes on the same inputs. They
    must hold if no trusted subject is installed, or if the claim depends on chance.
    """

    planned: PlannedCase
    asker: Asker
    trusted: Asker | None
    like: Answer
    before: Size
    progress: Progress

    def __call__(self, candidate: dict[str, Any]) -> bool:
        gate, case = self.planned.gate, self.planned.case
        inputs, cut = rollout_cut.cut_of(candidate)
        answer = self.asker.ask(gate, case, inputs, cut)
        if not answer.same_failure(self.like):
            return False
        if not answer.preconditions_hold and (self.trusted is None or _by_chance(gate, answer)):
            return False
        if self.trusted is not None and self.trusted.ask(gate, case, inputs, cut).state != "holds":
            return False
        size = Size.of(answer, inputs)
        self.progress.smaller(f"{self.before.number} → {size.number} {size.unit}")
        return True


def _why_no_smaller(gate: Gate, trusted: Asker | None, answer: Answer) -> str:
    """Return why the preconditions had to hold, or "" if they were not required."""
    if trusted is None:
        return "; no trusted subject passes here, so the gate's preconditions had to hold"
    return (
        "; a claim about many draws or steps: the gate's preconditions had to hold" if _by_chance(gate, answer) else ""
    )


def _by_chance(gate: Gate, answer: Answer) -> bool:
    """Return whether correct subjects sometimes fail the claim: that of a statistical gate without an exact limit."""
    bound = gate.bounds.get(answer.failing.quantity) if answer.failing else None
    return gate.id in STATISTICAL and (bound is None or bound.kind != "exact")


def _trusted(
    planned: PlannedCase, inputs: Mapping[str, Any], options: Options, subjects: Mapping[str, Subject], deadline: float
) -> Asker | None:
    """Return an unmutated shipped subject that passes where this one fails."""
    for name in OWN:  # correct subjects, which pass only on legal inputs
        if name not in subjects or (name == planned.subject.name and not options.mutant):
            continue
        asker = Asker(subjects[name], options.threads, quick=not options.full, deadline=deadline)
        try:
            if asker.ask(planned.gate, planned.case, inputs).state == "holds":
                return asker
        except WorkerError:
            pass  # not installed; the next may be
        except KeyboardInterrupt:
            asker.close()
            raise
        asker.close()
    return None
