"""How often does each gate refuse a correct subject? The same cells over many seeds, counted in blocks of seeds."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gates.model import STATUSES, Gate, Recipe, Status, Verdict
from gates.report.jsonl import Results, Writer
from gates.report.records import AlarmRecord, BlockRecord, ModelRecord, ShareRecord
from gates.runner import UNCALIBRATED, Job, Judged, Options, run
from gates.session import FAILED, HELD, NOTHING, subject_record

Key = tuple[str, str, str]  # gate, subject, case
TIMEOUT = "timeout"  # the cause of a verdict that ran out of time
ALARMS: tuple[Status, ...] = ("fail", "error")


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been judged when a seed ends, or one more verdict was reached."""

    seed: int
    verdicts: int
    alarms: int


def key(job: Job) -> Key:
    """Return what a block belongs to."""
    return job.gate.id, job.subject.name, job.case.name


def runs_a_model(gate: Gate) -> bool:
    """Whether a case of the gate carries a recipe: then a model rolls out or trains, and a seed takes seconds."""
    made = (case.make(np.random.default_rng(0)) for case in gate.cases)
    return any(isinstance(value, Recipe) for inputs in made for value in inputs.values())


def is_alarm(verdict: Verdict) -> bool:
    """Whether a verdict on a correct subject is a false alarm; a limit that nobody has recorded yet is none."""
    return verdict.status in ALARMS and verdict.cause != UNCALIBRATED


@dataclass(slots=True)
class Block:
    """One cell over the seeds of a block, as they come."""

    first_seed: int
    seeds: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    alarms: list[AlarmRecord] = field(default_factory=list)
    worst: dict[str, ShareRecord] = field(default_factory=dict)
    retried: int = 0
    seconds: float = 0.0

    def add(self, seed: int, verdict: Verdict) -> None:
        """Count one verdict, and keep what came nearest to a limit."""
        self.seeds += 1
        self.counts[verdict.status] += 1
        self.seconds += verdict.seconds
        if is_alarm(verdict):
            alarm = AlarmRecord(seed=seed, status=verdict.status, cause=verdict.cause, reason=verdict.reason)
            self.alarms.append(alarm)
        for share in shares(seed, verdict):
            before = self.worst.get(share.quantity)
            if before is None or _size(share) > _size(before):
                self.worst[share.quantity] = share

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
            alarms=self.alarms,
            retried=self.retried,
            shares=list(self.worst.values()),
            seconds=round(self.seconds, 3),
        )


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
    cells: Sequence[Job],
    seeds: range,
    size: int,
    options: Options,
    writer: Writer,
    before: Results,
    tell: Callable[[Progress, Verdict | None], None],
) -> None:
    """Judge every cell at every seed that is not in `before`; write a block as its last seed ends, or as the run is stopped.

    `tell` hears of every verdict, and without one of every seed that ended.
    """
    done = judged(before.blocks)
    greeted = {subject.subject for subject in before.subjects}
    models = {model.hash for model in before.models}
    verdicts = alarms = 0
    for start in range(0, len(seeds), size):
        blocks: dict[Key, Block] = {}
        try:
            for seed in seeds[start : start + size]:
                todo = [job for job in cells if seed not in done.get(key(job), ())]
                for found, retried in _judge(todo, replace(options, seed=seed)):
                    verdict = found.verdict
                    if found.hello and verdict.subject not in greeted:
                        writer.write(subject_record(verdict.subject, found.hello))
                        greeted.add(verdict.subject)
                    for digest, spec in found.models.items():
                        if digest not in models:
                            writer.write(ModelRecord(spec=dict(spec), hash=digest))
                            models.add(digest)
                    of = (verdict.gate, verdict.subject, verdict.case)
                    block = blocks.setdefault(of, Block(seed))
                    block.add(seed, verdict)
                    block.retried += retried
                    verdicts += 1
                    alarms += is_alarm(verdict)
                    tell(Progress(seed, verdicts, alarms), verdict)
                tell(Progress(seed, verdicts, alarms), None)
        finally:  # Ctrl-C too: a seed that was judged is not judged again
            for of, block in sorted(blocks.items()):
                writer.write(block.record(of))


def _judge(cells: Sequence[Job], options: Options) -> Iterator[tuple[Judged, bool]]:
    """Yield each verdict; one that ran out of time is reached again when the others are done, and then it counts.

    A machine that stood still for a minute says nothing of a gate; a subject that hangs does so twice.
    """
    late: set[Key] = set()
    for found in run(list(cells), options):
        verdict = found.verdict
        if verdict.cause == TIMEOUT:
            late.add((verdict.gate, verdict.subject, verdict.case))
        else:
            yield found, False
    again = [job for job in cells if key(job) in late]
    for found in run(again, replace(options, jobs=1)) if again else ():
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
