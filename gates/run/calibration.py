"""Calibrate gates: judge correct subjects at many seeds, where each failure and each error is a false positive.

A calibration is a check at many seeds. Its file has a line for each gate, subject and block of seeds instead of one for
each verdict, and a run that was stopped goes on in its own file.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from gates.model import FAILURES, STATUSES, ConfigurationError, Gate, Recorded, Status, Verdict
from gates.results.jsonl import Results, Writer, read
from gates.results.records import HeaderRecord, NearestRecord, SummaryRecord, seeds_of
from gates.run import execute, limits
from gates.run.calibration_summary import (
    KINDS,
    Key,
    Line,
    added,
    commit_words,
    counts,
    done,
    exit_code,
)
from gates.run.engines.interface import Engine, Executor
from gates.run.judge import TIMEOUT, Judged
from gates.run.limits import NOWHERE, Entry, Place
from gates.run.plan import Options, PlannedCase
from gates.run.session import HandshakeRecords

SAME = ("verb", "seed", "seeds", "quick", "full", "gates", "subjects", "beside")
MOST = 3  # gates that a refusal names


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    gates: Sequence[Gate]
    cases: Sequence[PlannedCase]
    options: Options
    seeds: range
    block: int
    header: HeaderRecord
    proofs: Path
    write_limits: bool = False
    engine: Engine | None = None  # None: this machine's workers
    recorded: Mapping[Key, set[int]] = field(default_factory=dict)  # seeds that are not judged again


def lacking(
    cases: Iterable[PlannedCase], seeds: Iterable[int], *known: Mapping[Key, set[int]]
) -> Iterator[PlannedCase]:
    """Yield every case at every seed that is not known, seed by seed."""
    planned = [((case.gate.id, case.subject.name, case.case.name), case) for case in cases]
    for seed in seeds:
        yield from (replace(case, seed=seed) for key, case in planned if not any(seed in k.get(key, ()) for k in known))


class Progress(Protocol):
    """Callbacks for the verdicts of a run."""

    def begin(self, left: int) -> AbstractContextManager[object]:
        """Enter before the first verdict; so many are left."""
        ...

    def verdict(self, seed: int, verdict: Verdict) -> None:
        """Count a verdict."""
        ...

    def seed(self, seed: int) -> None:
        """Note that every case was judged up to this seed."""
        ...


class Ended(NamedTuple):
    """What a run comes to."""

    code: int
    results: Results
    defects: list[str]  # of the limits


def conduct(request: Request, path: Path, progress: Progress) -> Ended:
    """Judge what the file lacks, and write the line that ends it."""
    start = time.monotonic()
    writer = Writer.again(path)
    try:
        if path.stat().st_size == 0:
            writer.write(request.header)
        before = resumed(path, request.header)
        if before.summary is None:
            writer.cut()  # after reading: a file of another program loses nothing
            _judge(request, writer, before, progress)
        results = read(path)
        if request.write_limits:
            proved = [read(proof) for proof in sorted(request.proofs.glob("prove-*.jsonl*"), reverse=True)]
            limits.renew(renewed(request.gates, results, proved))
        defects = limits.load().defects(gate.id for gate in request.gates)
        code = exit_code(results.calibrations, defects, writes_limits=request.write_limits)
        if before.summary is None:
            found = sum(map(counts, results.calibrations), Counter[Status]())
            end = {status: found[status] for status in STATUSES}
            seconds = round(time.monotonic() - start, 3)
            writer.write(SummaryRecord(counts=end, seconds=seconds, exit_code=code, problems=defects))
    finally:
        writer.close()
    return Ended(code, results, defects)


def resumed(path: Path, header: HeaderRecord) -> Results:
    """Return what a file holds of the run that is asked for.

    Raises:
        ConfigurationError: if it is another run; or, unless it is complete, one of another commit, code or processor, because
            the seeds that are left would be of other gates than those that are there. The commit alone is not enough: files
            may have been edited since.
    """
    results = read(path)
    names = SAME if header.beside else (*SAME, "planned")  # a summary that grew since leaves fewer seeds
    then, now = ({name: getattr(found, name) for name in names} for found in (results.header, header))
    if results.summary is None:
        for found, fields in ((results.header, then), (header, now)):
            fields |= {"commit": found.commit, "processor": found.machine.cpu}
    for name in now:
        if then[name] != now[name]:
            raise ConfigurationError(
                f"--resume {path}: its {name} is {_short(then[name])}, and this command's {_short(now[name])}; "
                "repeat the command of the file, or begin a new one"
            )
    changed = sorted(gate for gate, code in header.codes.items() if results.header.codes.get(gate) != code)
    if results.summary is None and changed:
        more = f" and {len(changed) - MOST} more" if len(changed) > MOST else ""
        raise ConfigurationError(
            f"--resume {path}: the code or the limits of {', '.join(changed[:MOST])}{more} are others than when it began; "
            "begin a new file"
        )
    return results


def _short(value: object) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}…"


def _judge(request: Request, writer: Writer, before: Results, progress: Progress) -> None:
    """Judge every case at every seed that neither the file nor the summary has, and write the lines of each block.

    One executor judges all of it, so that a worker serves several seeds. This machine's workers judge one seed after the
    other. Another engine is given a block at once, because it may have more processors than a seed has cases.
    """
    known = (request.recorded, done(before, request.header, KINDS))
    left = sum(1 for _ in lacking(request.cases, request.seeds, *known))
    step = 1 if request.engine is None else request.block
    notes = HandshakeRecords(before)
    places: dict[str, Place] = defaultdict(lambda: NOWHERE)  # a worker that does not start says nothing of it
    with execute.opened(request.options, request.engine) as executor, progress.begin(left):
        for start in range(0, len(request.seeds), request.block):
            block = request.seeds[start : start + request.block]
            with _written(writer, request.header) as lines:
                for seeds in (block[first : first + step] for first in range(0, len(block), step)):
                    todo = list(lacking(request.cases, seeds, *known))
                    for found, retried in _verdicts(executor, todo, request):
                        for record in notes.new(found):
                            writer.write(record)
                        verdict, seed = found.verdict, _seed(found)
                        if found.hello:
                            places[verdict.subject] = Place.of(found.hello.versions)
                        line = lines[verdict.gate, verdict.subject, places[verdict.subject]]
                        line.see(verdict, seed, retried=retried)
                        progress.verdict(seed, verdict)
                    if todo:
                        progress.seed(seeds[-1])


@contextmanager
def _written(writer: Writer, header: HeaderRecord) -> Generator[dict[tuple[str, str, Place], Line]]:
    """Give the lines of a block to count in, and write them in the end, after Ctrl-C too: what was judged is kept."""
    lines: dict[tuple[str, str, Place], Line] = defaultdict(Line)
    try:
        yield lines
    finally:
        with _held_back():
            for key in sorted(lines, key=str):
                lines[key].commits[commit_words(header)] = None
                writer.write(lines[key].record(*key, header.machine.cpu, full=header.full))


def _seed(found: Judged) -> int:
    if found.seed is None:
        raise TypeError("the cases of a calibration have seeds, and an executor returns them")
    return found.seed


def _verdicts(executor: Executor, todo: Sequence[PlannedCase], request: Request) -> Iterator[tuple[Judged, bool]]:
    """Yield each verdict and whether it was retried. What ran out of time is judged once more in the end, and that counts.

    A machine that stood still for a minute says nothing of a gate; a subject that hangs does so twice.
    """
    late: dict[Key, set[int]] = defaultdict(set)
    executor.submit(todo)
    for found in executor.judged():
        if found.verdict.cause == TIMEOUT:
            late[found.verdict.gate, found.verdict.subject, found.verdict.case].add(_seed(found))
        else:
            yield found, False
    again = (
        [case for case in todo if case.seed in late[case.gate.id, case.subject.name, case.case.name]] if late else []
    )
    for found in execute.run(again, replace(request.options, jobs=1), request.engine) if again else ():
        yield found, True


@contextmanager
def _held_back() -> Generator[None]:
    """Hold back Ctrl-C and SIGTERM while lines are written: a second of writing keeps hours of judging.

    Only the main thread hears of signals; in others nothing is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def renewed(gates: Iterable[Gate], run: Results, proved: Sequence[Results]) -> Iterator[Entry]:
    """Yield an entry for each recorded limit of these gates, in each case and place that a calibration judged.

    The noise is the largest value of a correct subject. The effect is the least value above it that a caught mutant gave in
    the newest proof with this gate and quantity. A new gate has no proof yet, because its unmutated run must pass first:
    its entries have no effect, which is a defect until the limits are written again after `gates prove`.

    Raises:
        ConfigurationError: a correct subject gave NaN or infinity, from which no limit can be made.
    """
    wanted = [(gate, name, bound.limit) for gate in gates for name, bound in gate.bounds.items()]
    for gate, quantity, limit in wanted:
        if not isinstance(limit, Recorded):
            continue
        shown = ((proof, _effects(gate, quantity, proof)) for proof in proved)
        proof, effects = next((pair for pair in shown if pair[1]), (None, []))
        for (case, place), (noise, seeds) in _noise(gate, quantity, run).items():
            if not math.isfinite(noise.observed):
                raise ConfigurationError(
                    f"{gate.id}: {quantity} of a correct subject is {noise.observed:g} in {case} on {place} at seed "
                    f"{noise.seed}, and no limit is made of that: mend the subject or the gate, and calibrate it again"
                )
            above = [
                (value, name) for of, value, name, caught in effects if caught and of == case and value > noise.observed
            ]
            effect, mutant = min(above, default=(None, ""))
            yield Entry(
                gate=gate.id,
                quantity=quantity,
                case=case,
                backend=place.backend,
                blas=place.blas,
                limit=limits.limit_of(noise.observed, effect, limit.times),
                noise_floor=noise.observed,
                noise_seed=noise.seed,
                smallest_effect=effect,
                mutant=mutant,
                seeds=len(seeds),
                commit=run.header.commit,
                date=run.header.started[:10],
                source=", ".join(found.path.name for found in (run, proof) if found is not None),
                history=[],
            )


def _noise(gate: Gate, quantity: str, run: Results) -> dict[tuple[str, Place], tuple[NearestRecord, set[int]]]:
    """Return, for each case and place, the largest value of a correct subject and the seeds behind it."""
    found: dict[tuple[str, Place], tuple[NearestRecord, set[int]]] = {}
    for line in added(run.calibrations):
        for near in line.nearest if line.gate == gate.id else ():
            if near.quantity == quantity:
                key = (near.case, Place(line.backend, line.blas))
                seeds = {
                    seed for cases in line.seeds.values() if near.case in cases for seed in seeds_of(cases[near.case])
                }
                worst, before = found.get(key, (near, set()))
                found[key] = (max(worst, near, key=_observed), before | seeds)
    return dict(sorted(found.items(), key=str))


def _observed(found: NearestRecord) -> float:
    """Return what is compared; NaN counts as infinite, because every comparison with NaN is false."""
    return math.inf if math.isnan(found.observed) else found.observed


def _effects(gate: Gate, quantity: str, proof: Results) -> list[tuple[str, float, str, bool]]:
    """Return the case, value, mutant and whether it was caught, of each value that a proof has of a gate's quantity."""
    return [
        (verdict.case, item.observed, verdict.mutant, verdict.status in FAILURES)
        for verdict in proof.verdicts
        if verdict.mutant and verdict.gate == gate.id
        for item in verdict.evidence
        if item.quantity == quantity
    ]
