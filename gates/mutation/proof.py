"""Run mutants against the gates that must catch them, and measure the sensitivity of each gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from gates.model import FAILURES, GRADES, IN_LIMITS, Gate, Mutant, Outcome, Probe, Recipe, Subject, Verdict, Wire
from gates.run.engines.interface import Engine
from gates.run.engines.pool import Pool
from gates.run.execute import opened, run
from gates.run.judge import TIMEOUT, Judged, judge
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase, plan, seed_of
from gates.worker.process import Worker, WorkerError

LARGEST, LEAST = -1.0, -10.0  # decimal exponents of the relative errors tried
FAR = 100.0  # textbook limits between a wrong formula and an honest program
STEP = 0.125  # of a decimal exponent: the sensitivity is known to a third


State = Literal["caught", "missed", "equivalent", "error"]


@dataclass(frozen=True, slots=True)
class Trialled:
    """The result of one mutant."""

    mutant: Mutant
    state: State
    reason: str
    verdicts: tuple[Verdict, ...] = ()

    @property
    def decided(self) -> Verdict | None:
        """The decisive verdict: the worst grade, then the largest distance from a limit."""
        failed = [verdict for verdict in self.verdicts if verdict.status in FAILURES]
        return max(failed, key=lambda verdict: (_severity(verdict), distance(verdict) or 0.0), default=None)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The least relative error of a gate's outputs that it notices in one case; None if it notices none."""

    gate: str
    subject: str
    case: str
    noticed: float | None


def mutants_of(gates: Iterable[Gate], mutants: Iterable[Mutant]) -> list[Mutant]:
    """Return the mutants that at least one of these gates must catch."""
    ids = {gate.id for gate in gates}
    return [mutant for mutant in mutants if ids & set(mutant.caught_by)]


def try_mutants(
    mutants: list[Mutant],
    gates: Mapping[str, Gate],
    subjects: Mapping[str, Subject],
    options: Options,
    engine: Engine | None = None,
    *,
    first: bool = False,
) -> Iterator[Trialled]:
    """Apply each mutation in a fresh worker of its host and run the gates that must catch it.

    With `first` a gate stops at its first failing case.
    """
    single, cached = replace(options, jobs=1), OracleCache()  # mutants share their gates' inputs, so they share a cache
    engine = engine or partial(Pool, cached=cached)
    pool = ThreadPoolExecutor(options.jobs)
    futures = [
        pool.submit(_try, mutant, gates, subjects[mutant.host], single, engine, first=first) for mutant in mutants
    ]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C do not wait for running mutants


def _try(
    mutant: Mutant, gates: Mapping[str, Gate], host: Subject, options: Options, engine: Engine, *, first: bool
) -> Trialled:
    targets = [gates[id_] for id_ in mutant.caught_by if id_ in gates]
    mutated = replace(options, mutant={"target": mutant.target, "patch": mutant.patch})
    verdicts, calls = _judged(mutant, _planned(mutant, targets, host, options), mutated, engine, first=first)
    if any(v.cause in {"start", "absent"} for v in verdicts):
        return Trialled(mutant, "error", next(v.reason for v in verdicts if v.cause in {"start", "absent"}), verdicts)
    if not calls:
        return Trialled(mutant, "error", f"the patch target {mutant.target} never ran", verdicts)
    for gate in targets:
        own = [v for v in verdicts if v.gate == gate.id]
        if not any(v.status in FAILURES for v in own):
            states = ", ".join(sorted({f"{v.status} ({v.reason})" if v.reason else v.status for v in own}))
            if changes_nothing(mutant, targets, host, options):
                return Trialled(mutant, "equivalent", f"{EQUIVALENT} ({states})", verdicts)
            return Trialled(mutant, "missed", f"{gate.id} does not fail: {states}", verdicts)
    trialled = Trialled(mutant, "caught", "", verdicts)
    decided = trialled.decided
    if decided is None:
        raise AssertionError("every gate has failed")
    if not _enough(mutant, decided):
        return replace(trialled, state="missed", reason=_too_weak(mutant, decided))
    return replace(trialled, reason=decided.reason)


def _planned(mutant: Mutant, gates: Sequence[Gate], host: Subject, options: Options) -> list[PlannedCase]:
    """Return the cases in which a mutant is tried."""
    return [planned for planned in plan(gates, [host], quick=options.quick, proof=True) if mutant.has(planned.case)]


def distance(verdict: Verdict) -> float | None:
    """Return the distance of the worst claim in textbook limits, or None if no such claim failed."""
    distances = [item.observed for item in verdict.evidence if not item.holds and item.quantity.endswith(IN_LIMITS)]
    return max((math.inf if math.isnan(value) else value for value in distances), default=None)


def far_outputs(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the quantities that lie at least `FAR` textbook limits away in some case: `gradient error`."""
    far = {
        item.quantity.removesuffix(f" {IN_LIMITS}")
        for verdict in verdicts
        for item in verdict.evidence
        if item.quantity.endswith(IN_LIMITS) and not item.observed < FAR
    }
    return sorted(far)


def _severity(verdict: Verdict) -> int:
    return GRADES.index(verdict.status) if verdict.status in GRADES else 0  # a timeout has no level


def _enough(mutant: Mutant, verdict: Verdict) -> bool:
    """Whether a verdict catches a mutant at its level, and a wrong formula at least `FAR` textbook limits away."""
    if verdict.status == "timeout":
        return True
    away = distance(verdict)
    return _severity(verdict) >= GRADES.index(mutant.grade) and (mutant.grade != "wrong" or away is None or away >= FAR)


def _too_weak(mutant: Mutant, verdict: Verdict) -> str:
    if _severity(verdict) < GRADES.index(mutant.grade):
        shortfall = f"it is {verdict.status} at most, must be {mutant.grade}"
    else:
        shortfall = f"it is {distance(verdict):.3g} textbook limits away at most, must be {FAR:g}"
    return f"{shortfall}: choose inputs that show it ({verdict.gate} · {verdict.case}: {verdict.reason})"


def _judged(
    mutant: Mutant, cases: list[PlannedCase], options: Options, engine: Engine, *, first: bool
) -> tuple[tuple[Verdict, ...], int]:
    """Return the verdicts and the number of calls of the mutated function.

    Timed-out cases are retried once, and the retry counts: a pause of the machine must not count as caught.
    """
    verdicts: dict[tuple[str, str], Verdict] = {}
    calls = 0
    for _ in range(2):
        for judged in _until_caught(mutant, cases, options, engine) if first else run(cases, options, engine):
            verdicts[judged.verdict.gate, judged.verdict.case] = judged.verdict
            calls += judged.patched_calls
        cases = [c for c in cases if verdicts[c.gate.id, c.case.name].cause == TIMEOUT]
        if not cases:
            break
    return tuple(verdicts.values()), calls


def _until_caught(mutant: Mutant, cases: list[PlannedCase], options: Options, engine: Engine) -> Iterator[Judged]:
    """Judge the cases one by one; a gate that has caught the mutant at its level gets no more cases."""
    caught = set()
    with opened(options, engine) as executor:
        for planned in cases:
            if planned.gate.id in caught:
                names = (planned.gate.id, planned.subject.name, planned.case.name)
                yield Judged(
                    Verdict(
                        *names,
                        seed_of(planned, options),
                        "skipped",
                        "caught",
                        LEFT_OUT,
                        op=planned.gate.graded(planned.case),
                    )
                )
                continue
            executor.submit([planned])
            for judged in executor.judged():
                yield judged
                if judged.verdict.status in FAILURES and _enough(mutant, judged.verdict):
                    caught.add(planned.gate.id)


LEFT_OUT = "the gate failed in an earlier case, and a quick proof needs one"
EQUIVALENT = (
    "no output differs from the unmutated host's in any case of its gates, so no gate can fail: change mutant or cases"
)


def changes_nothing(mutant: Mutant, gates: list[Gate], host: Subject, options: Options) -> bool:
    """Whether every call of every case has the same outcome with and without the mutation."""
    mutation = {"target": mutant.target, "patch": mutant.patch}
    workers = [Worker.start(host, threads=options.threads, mutant=m) for m in (None, mutation)]
    try:
        for planned in _planned(mutant, gates, host, options):
            tapes = [Tape(worker, planned.case.limit_s) for worker in workers]
            for tape in tapes:
                judge(planned, tape.record, tape.worker.hello, options)
            outcomes = [[(c.outcome.kind, c.outcome.error, c.outcome.value) for c in tape.calls] for tape in tapes]
            if not same(*outcomes) or not all(worker.alive for worker in workers):
                return False
    finally:
        for worker in workers:
            worker.close()
    return True


def same(a: Wire, b: Wire) -> bool:
    """Whether two values have the same bits; any NaN equals any NaN outside arrays."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        alike = np.shape(a) == np.shape(b) and np.asarray(a).dtype == np.asarray(b).dtype
        return alike and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b or (a != a and b != b))  # noqa: PLR0124  NaN equals NaN here


def sensitivities(gate: Gate, subject: Subject, options: Options, worker: Worker) -> Iterator[Sensitivity]:
    """Perturb the outputs of a passing run, and bisect for the least relative error that makes the gate fail."""
    for planned in plan([gate], [subject], quick=options.quick, proof=True):
        tape = Tape(worker, planned.case.limit_s)
        cached = OracleCache()  # every perturbation is compared with the same oracle values
        if judge(planned, tape.record, worker.hello, options, cached).status != "correct":
            continue

        def fails(
            power: float, planned: PlannedCase = planned, tape: Tape = tape, cached: OracleCache = cached
        ) -> bool:
            replay = Replay(tape, gate.probes, 10.0**power)
            return judge(planned, replay.call, worker.hello, options, cached).status in FAILURES

        yield Sensitivity(*planned.names, least(fails))


def least(fails: Callable[[float], bool]) -> float | None:
    """Return the least relative error that fails, to within a third; None if even the largest passes."""
    if not fails(LARGEST):
        return None
    if fails(LEAST):
        return float(10.0**LEAST)
    high, low = LARGEST, LEAST
    while high - low > STEP:
        middle = (high + low) / 2
        high, low = (middle, low) if fails(middle) else (high, middle)
    return float(10.0**high)


class Recorded(NamedTuple):
    """One call of a trial and its outcome."""

    op: str
    inputs: Mapping[str, Wire | Recipe]
    outcome: Outcome


@dataclass(slots=True)
class Tape:
    """The outcomes of one trial in order, for a replay without the worker."""

    worker: Worker
    limit_s: float
    calls: list[Recorded] = field(default_factory=list)

    def record(
        self,
        op: str,
        inputs: Mapping[str, Wire | Recipe],
        layout: Mapping[str, str],
        kill_after_s: float | None,
    ) -> Outcome:
        """Call the worker and keep the outcome."""
        if not self.worker.alive:
            raise WorkerError("crashed", "the worker ended while a trial was recorded")
        outcome = self.worker.call(op, inputs, limit_s=kill_after_s or self.limit_s, layout=layout)
        self.calls.append(Recorded(op, inputs, outcome))
        return outcome


@dataclass(slots=True)
class Replay:
    """Replays a tape with a relative error in the outputs that the gate's probes name."""

    tape: Tape
    probes: tuple[Probe, ...]
    size: float
    position: int = 0

    def call(
        self,
        op: str,
        inputs: Mapping[str, Wire | Recipe],
        layout: Mapping[str, str],
        kill_after_s: float | None,
    ) -> Outcome:
        """Return the next recorded outcome, perturbed if a probe names it."""
        del layout, kill_after_s
        if self.position >= len(self.tape.calls):
            return Outcome(
                "crashed", error="the tape ended"
            )  # the gate made more calls than before because it noticed the error
        recorded, _, outcome = self.tape.calls[self.position]
        self.position += 1
        if recorded != op or outcome.kind != "value":
            return outcome
        names = {name for probe in self.probes if probe.op == op and probe.when(inputs) for name in probe.outputs}
        return replace(outcome, value={k: disturb(v, self.size) if k in names else v for k, v in outcome.value.items()})


def disturb(value: Wire, size: float) -> Wire:
    """Return a float or array with a relative error in every element, or an absolute one in an array of zeros."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    off = array * (1.0 + size) if np.any(array != 0.0) else array + size
    return off.astype(array.dtype) if isinstance(value, np.ndarray) else float(off)
