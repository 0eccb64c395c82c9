"""How often does each gate refuse a correct subject? The same cells over many seeds, counted in blocks of seeds."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter

from gates.model import STATUSES, Status, Verdict
from gates.results.jsonl import Results, Writer
from gates.results.records import AlarmRecord, BlockRecord, ShareRecord
from gates.run import execute
from gates.run.engines.interface import Engine, Executor
from gates.run.judge import TIMEOUT, UNCALIBRATED, Judged
from gates.run.plan import Options, PlannedCase
from gates.run.session import FAILED, HELD, NOTHING, HandshakeRecords

Key = tuple[str, str, str]  # gate, subject, case
ALARMS: tuple[Status, ...] = ("fail", "error")


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been judged when a seed ends, or one more verdict was reached."""

    seed: int
    verdicts: int
    alarms: int


def key(job: PlannedCase) -> Key:
    """Return what a block belongs to."""
    return job.gate.id, job.subject.name, job.case.name


def is_alarm(verdict: Verdict) -> bool:
    """Whether a verdict on a correct subject is a false alarm; a limit that nobody has recorded yet is none."""
    return verdict.status in ALARMS and verdict.cause != UNCALIBRATED


@dataclass(frozen=True, slots=True)
class Block:
    """One cell over seeds without a gap, as they come."""

    first_seed: int
    seeds: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    alarms: tuple[AlarmRecord, ...] = ()
    worst: Mapping[str, ShareRecord] = field(default_factory=dict)
    retried: int = 0
    seconds: float = 0.0

    def after(self, seed: int, verdict: Verdict, *, retried: bool) -> Block:
        """Return the block with one more verdict, and of each quantity what came nearest to its limit.

        A new one, for Ctrl-C may come at any moment: a seed that is counted has its alarm too.
        """
        alarms = self.alarms
        if is_alarm(verdict):
            found = AlarmRecord(seed=seed, status=verdict.status, cause=verdict.cause, reason=verdict.reason)
            alarms = (*alarms, found)
        worst = dict(self.worst)
        for share in shares(seed, verdict):
            before = worst.get(share.quantity)
            if before is None or _size(share) > _size(before):
                worst[share.quantity] = share
        return Block(
            self.first_seed,
            self.seeds + 1,
            self.counts + Counter((verdict.status,)),
            alarms,
            worst,
            self.retried + retried,
            self.seconds + verdict.seconds,
        )

    def record(self, of: Key) -> BlockRecord:
        """Return the block as its line."""
        gate, subject, case = of
        return BlockRecord(
            gate=gate,
            subject=subject,
            case=case,
            first_seed=self.first_seed,
            seeds=self.seeds,
            counts={status: self.counts[status] for status in STATUSES if self.counts[status]},
            alarms=list(self.alarms),
            retried=self.retried,
            shares=list(self.worst.values()),
            seconds=round(self.seconds, 3),
        )


def grown(blocks: tuple[Block, ...], seed: int, verdict: Verdict, *, retried: bool) -> tuple[Block, ...]:
    """Return a cell's blocks with one more verdict: in the last one, or in a new one behind seeds that were left out."""
    if blocks and blocks[-1].first_seed + blocks[-1].seeds == seed:
        return *blocks[:-1], blocks[-1].after(seed, verdict, retried=retried)
    return *blocks, Block(seed).after(seed, verdict, retried=retried)


def shares(seed: int, verdict: Verdict) -> Iterator[ShareRecord]:
    """Yield what each claim `observed <= limit` used of its limit; where the limit is NaN, what was observed alone."""
    for item in verdict.evidence:
        if item.role == "claim" and item.relation == "<=" and (item.limit > 0 or math.isnan(item.limit)):
            share = None if math.isnan(item.limit) else item.observed / item.limit
            yield ShareRecord(quantity=item.quantity, share=share, observed=item.observed, limit=item.limit, seed=seed)


def _size(share: ShareRecord) -> float:
    """Return what is compared: a NaN is the worst of all."""
    size = share.observed if share.share is None else share.share
    return math.inf if math.isnan(size) else size


def judged(blocks: Iterable[BlockRecord]) -> dict[Key, set[int]]:
    """Return which seeds of which cells stand in blocks that were read."""
    found: dict[Key, set[int]] = {}
    for block in blocks:
        seeds = range(block.first_seed, block.first_seed + block.seeds)
        found.setdefault((block.gate, block.subject, block.case), set()).update(seeds)
    return found


def calibrate(
    cells: Sequence[PlannedCase],
    seeds: range,
    size: int,
    options: Options,
    log: Log,
    done: Mapping[Key, Container[int]],
    tell: Callable[[Progress, Verdict | None], None],
    engine: Engine | None = None,
) -> None:
    """Judge every cell at every seed that is not done; write its lines as a block's last seed ends, or as the run is stopped.

    One executor judges all of it, so that a worker serves several seeds. This machine's workers judge one seed after the
    other; another engine is given a block at once, for it may have more processors than a seed has cells.
    `tell` hears of every verdict, and without one whenever all that was handed in is judged.
    """
    verdicts = alarms = 0
    with execute.opened(options, engine) as executor:
        for start in range(0, len(seeds), size):
            blocks: dict[Key, tuple[Block, ...]] = {}
            block = seeds[start : start + size]
            try:
                for first in range(0, len(block), 1 if engine is None else size):
                    together = block[first : first + (1 if engine is None else size)]
                    todo = [
                        replace(job, seed=seed)
                        for seed in together
                        for job in cells
                        if seed not in done.get(key(job), ())
                    ]
                    for seed, found, retried in in_order(todo, _judge(executor, todo, options, engine)):
                        verdict = found.verdict
                        log.note(found)
                        of = (verdict.gate, verdict.subject, verdict.case)
                        blocks[of] = grown(blocks.get(of, ()), seed, verdict, retried=retried)
                        verdicts += 1
                        alarms += is_alarm(verdict)
                        tell(Progress(seed, verdicts, alarms), verdict)
                    if todo:
                        tell(Progress(together[-1], verdicts, alarms), None)
            finally:  # Ctrl-C too: a seed that was judged is not judged again
                with _held_back():
                    for of, counted in sorted(blocks.items(), key=itemgetter(0)):
                        for one in counted:
                            log.writer.write(one.record(of))


@contextmanager
def _held_back() -> Generator[None]:
    """Let Ctrl-C and SIGTERM wait: thousands of lines are hours of judging, and a second of writing.

    Only the main thread hears of signals; in others nothing is to be held back.
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


class Log:
    """A results file to which what a subject says of itself, and each model's hash, is written once."""

    def __init__(self, writer: Writer, before: Results) -> None:
        self.writer = writer
        self._told = HandshakeRecords(before)

    def note(self, found: Judged) -> None:
        """Write what is new of a verdict's subject and its models."""
        for record in self._told.new(found):
            self.writer.write(record)


def in_order(todo: Sequence[PlannedCase], found: Iterable[tuple[Judged, bool]]) -> Iterator[tuple[int, Judged, bool]]:
    """Yield each cell's verdicts in the order of its seeds, whatever the order in which they are reached.

    A block holds seeds without a gap, so a verdict waits until those before it are there.
    """
    wanted: dict[Key, deque[int]] = {}
    for job in todo:
        wanted.setdefault(key(job), deque()).append(_seed(job.seed))
    early: dict[Key, dict[int, tuple[Judged, bool]]] = {}
    for one, retried in found:
        of = (one.verdict.gate, one.verdict.subject, one.verdict.case)
        early.setdefault(of, {})[_seed(one.seed)] = (one, retried)
        while wanted[of] and wanted[of][0] in early[of]:
            seed = wanted[of].popleft()
            yield seed, *early[of].pop(seed)


def _seed(seed: int | None) -> int:
    if seed is None:
        raise TypeError("the cells of a calibration bring their seeds, and an executor returns them")
    return seed


def _judge(
    executor: Executor, cells: Sequence[PlannedCase], options: Options, engine: Engine | None
) -> Iterator[tuple[Judged, bool]]:
    """Yield each verdict; one that ran out of time is reached again when the others are done, and then it counts.

    A machine that stood still for a minute says nothing of a gate; a subject that hangs does so twice.
    """
    late: set[tuple[Key, int | None]] = set()
    executor.submit(cells)
    for found in executor.judged():
        verdict = found.verdict
        if verdict.cause == TIMEOUT:
            late.add(((verdict.gate, verdict.subject, verdict.case), found.seed))
        else:
            yield found, False
    again = [job for job in cells if (key(job), job.seed) in late]
    for found in execute.run(again, replace(options, jobs=1), engine) if again else ():
        yield found, True


def totals(blocks: Iterable[BlockRecord]) -> Counter[Status]:
    """Return how many verdicts of each status there are."""
    found: Counter[Status] = Counter()
    for block in blocks:
        found.update(block.counts)
    return found


def exit_code(blocks: Sequence[BlockRecord], defects: Sequence[str], *, writes_limits: bool) -> int:
    """Return 1 for a false alarm or a limit that separates nothing, 3 where nothing was measured, else 0.

    A limit that is recorded nowhere is a failure too, unless this run is the one that writes it.
    """
    found = totals(blocks)
    if defects or any(block.alarms for block in blocks) or (found["error"] and not writes_limits):
        return FAILED
    return HELD if found["pass"] or found["error"] else NOTHING


class Clock:
    """How long the rest will take, from what was judged so far."""

    def __init__(self, verdicts: int) -> None:
        self._wanted = verdicts
        self._start = time.monotonic()

    def left(self, verdicts: int) -> str:
        """Return the time that is left, in words."""
        if not verdicts:
            return "unknown"
        seconds = (time.monotonic() - self._start) * (self._wanted - verdicts) / verdicts
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
