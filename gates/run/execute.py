"""Run a plan on an engine: this machine's pool of workers, or one that the caller passes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gates.model import Verdict
from gates.run.engines.interface import Engine, Executor
from gates.run.engines.pool import Pool
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase, seed_of

NOT_ASKED = "not asked: the definition does not hold"
DEPENDENT = frozenset(("law", "robustness", "precision"))


def run(cases: Sequence[PlannedCase], options: Options, engine: Engine | None = None) -> Iterator[Judged]:
    """Judge every case and yield each verdict as it is reached. Closing the iterator ends all workers."""
    with opened(options, engine) as executor:
        executor.submit(cases)
        yield from executor.judged()


def in_order(
    cases: Sequence[PlannedCase], options: Options, engine: Engine | None = None, before: Iterable[Verdict] = ()
) -> Iterator[Judged]:
    """Judge definitions first, and skip what rests on a definition that does not hold, so that one cause is one finding.

    Args:
        cases: the plan.
        options: apply to every case.
        engine: None for this machine's workers.
        before: verdicts of an interrupted run.
    """
    wrong = {(verdict.subject, verdict.op) for verdict in before if _denied(verdict)}
    dependent = [planned for planned in cases if (planned.case.level or planned.gate.level) in DEPENDENT]
    chosen = {id(planned) for planned in dependent}
    with opened(options, engine) as executor:
        executor.submit([planned for planned in cases if id(planned) not in chosen])
        for judged in executor.judged():
            if _denied(judged.verdict):
                wrong.add((judged.verdict.subject, judged.verdict.op))
            yield judged
        left = []
        for planned in dependent:
            op = planned.gate.graded(planned.case)
            denied = [name for name in (op, *planned.case.rests_on) if (planned.subject.name, name) in wrong]
            if denied:
                yield Judged(_not_asked(planned, options, op, denied[0]))
            else:
                left.append(planned)
        executor.submit(left)
        yield from executor.judged()


def _denied(verdict: Verdict) -> bool:
    """Whether a verdict shows that the definition of its op does not hold; a failed start shows nothing."""
    return verdict.status == "wrong" and verdict.level == "definition" and verdict.cause != "start"


def _not_asked(planned: PlannedCase, options: Options, op: str, denied: str) -> Verdict:
    level = planned.case.level or planned.gate.level
    reason = f"{NOT_ASKED} ({denied} of {planned.subject.name})"
    return Verdict(*planned.names, seed_of(planned, options), "not asked", "definition", reason, op=op, level=level)


@contextmanager
def opened(options: Options, engine: Engine | None = None) -> Generator[Executor]:
    """Provide an executor until the context ends; without `engine` it is this machine's pool."""
    executor = (engine or Pool)(options)
    try:
        yield executor
    finally:
        executor.close()
