"""Conduct `gates bench trainers`: run the passes of all targets in turns and write the records."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benches.header import header, writer
from benches.trainers import blas, processes, rows, screen
from benches.trainers.estimates import Pass
from benches.trainers.rows import Measured
from benches.trainers.targets import REFERENCE, TARGETS, Target, python
from benches.trainers.workloads import SHAPES, WORKLOADS, Shape, Workload
from gates.errors import ConfigurationError, ExitCode
from gates.results.speed_records import SpeedSummary, TrainerRecord

DEFAULT_WORKLOADS: Final = ("no-early-end", "geometric")
PASSES, STEPS, WARMUP = 4, 6, 2
QUICK_PASSES, QUICK_STEPS, QUICK_WARMUP = 1, 2, 1
AGAIN: Final = "reference again"
EVERY: Final = "all"


@dataclass(frozen=True, slots=True)
class Plan:
    """Targets and workloads, numbers of passes and steps, and threads."""

    targets: tuple[Target, ...]
    absent: tuple[Target, ...]
    shape: Shape
    workloads: tuple[Workload, ...]
    passes: int
    steps: int
    warmup: int
    threads: int

    def able(self, workload: Workload) -> list[Target]:
        """Return the targets that support a workload."""
        return [t for t in self.targets if workload.name not in t.cannot]

    def processes(self) -> int:
        """Return the number of processes."""
        return self.passes * sum(len(self.able(w)) + 1 for w in self.workloads)

    def records(self) -> int:
        """Return the number of records."""
        return len(self.workloads) * (len(self.targets) + len(self.absent))


def planned(
    targets: str,
    workloads: Sequence[str],
    shape: str,
    passes: int | None,
    steps: int | None,
    threads: int,
    *,
    quick: bool,
) -> Plan:
    """Return the plan, which always includes the reference for ratios and the control.

    Raises:
        ConfigurationError: a name is unknown.
    """
    wanted = _names(targets, TARGETS, "target") or list(TARGETS)
    chosen = [TARGETS[name] for name in dict.fromkeys((REFERENCE, *wanted))]
    ready = {t.name: bool(python(t)) for t in chosen}
    entries = [",".join(WORKLOADS) if entry == EVERY else entry for entry in workloads]
    names = [n for entry in entries for n in _names(entry, WORKLOADS, "workload")] or list(DEFAULT_WORKLOADS)
    (shape_name,) = _names(shape, SHAPES, "shape") or ["tiny"]
    return Plan(
        tuple(t for t in chosen if ready[t.name]),
        tuple(t for t in chosen if not ready[t.name]),
        SHAPES[shape_name],
        tuple(WORKLOADS[name].on(SHAPES[shape_name]) for name in dict.fromkeys(names)),
        passes or (QUICK_PASSES if quick else PASSES),
        steps or (QUICK_STEPS if quick else STEPS),
        QUICK_WARMUP if quick else WARMUP,
        threads,
    )


def _names(entry: str, known: Any, kind: str) -> list[str]:
    from gates.nearest import hint

    names = [name.strip() for name in entry.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{kind} {name!r} is unknown, must be one of {', '.join(known)}{hint(name, known)}"
            )
    return names


def run(
    *,
    targets: str,
    workloads: Sequence[str],
    shape: str,
    passes: int | None,
    steps: int | None,
    threads: int,
    quick: bool,
    record: bool,
    as_json: bool,
    require: Sequence[str],
    echo: Callable[..., None],
) -> int:
    """Time the targets; return the exit code.

    Args:
        targets: names separated by commas; empty: all.
        workloads: names, also several separated by commas, or `all`; none: the default ones.
        shape: name of the model's shape.
        passes: processes of each target and workload; None: the default number.
        steps: timed steps of each process, three times as many if lengths are drawn; None: the default number.
        threads: of every library.
        quick: a smoke test, with one pass.
        record: write to results/bench instead of results/runs.
        as_json: print records as JSON lines instead of tables.
        require: targets that must be timed, or `all`.
        echo: prints a line; `echo(line, err=True)` one of progress.

    Raises:
        ConfigurationError: a name is unknown.
    """
    plan = planned(targets, workloads, shape, passes, steps, threads, quick=quick)
    needed = list(TARGETS) if EVERY in require else [n for entry in require for n in _names(entry, TARGETS, "target")]
    if missing := [t for t in plan.absent if t.name in needed]:
        for target in missing:
            echo(f"gates: {target.name} is required and {_no_environment(target)}", err=True)
        return ExitCode.FAILED
    started = time.monotonic()
    out = writer("trainers", record=record)
    records: list[TrainerRecord] = []
    interrupted = False
    with contextlib.closing(out):
        out.write(header("trainers", threads=threads, quick=quick, planned=plan.records()))
        try:
            for row in measured(plan, processes.messages):
                out.write(row)
                records.append(row)
                if as_json:
                    echo(row.model_dump_json())
            counts = Counter(r.outcome for r in records)
            seconds = round(time.monotonic() - started, 1)
            absent = [t.name for t in plan.absent]
            out.write(SpeedSummary(counts=dict(counts), absent=absent, seconds=seconds))
        except KeyboardInterrupt:
            interrupted = True
    if not as_json:
        for line in screen.lines(records):
            echo(line)
        counted = ", ".join(f"{count} {outcome}" for outcome, count in Counter(r.outcome for r in records).items())
        summary = f"{'interrupted; ' if interrupted else ''}{counted or 'nothing measured'}"
        echo(f"{summary}; {time.monotonic() - started:.0f} s; written to {out.path}")
    return _status(records, needed, interrupted=interrupted)


def _status(records: Sequence[TrainerRecord], needed: Sequence[str], *, interrupted: bool) -> int:
    if interrupted:
        return ExitCode.INTERRUPTED
    timed = {r.target for r in records if r.outcome == "timed"}
    if not timed:
        return ExitCode.NOTHING
    failed = any(r.outcome in {"error", "rejected"} for r in records)
    return ExitCode.FAILED if failed or not timed.issuperset(needed) else ExitCode.HELD


def _no_environment(target: Target) -> str:
    return f"has no environment here: `gates peers sync {target.peer}` makes it"


Messages = Callable[..., Iterator[dict[str, Any]]]


def measured(plan: Plan, messages: Messages) -> Iterator[TrainerRecord]:
    """Yield a record for each target and workload, absent and unsupported ones too.

    After an interruption the complete passes of the current workload are yielded.

    Args:
        plan: what to time.
        messages: starts a process and yields its messages: `processes.messages`.
    """
    progress = screen.Progress(plan.processes())
    progress.start("the speed of a matrix product")
    peak = _peak(plan, messages)
    for workload in plan.workloads:
        for target in plan.absent:
            yield rows.without_times(target, plan.shape, workload, "absent", _no_environment(target))
        for target in plan.targets:
            if reason := target.cannot.get(workload.name):
                yield rows.without_times(target, plan.shape, workload, "unsupported", reason)
        rounds = Measured()
        stopped = False
        try:
            for number in range(plan.passes):
                _round(plan, workload, number, rounds, progress, messages)
        except KeyboardInterrupt:
            stopped = True
        finally:
            progress.clear()
        for target in plan.able(workload):
            if stopped and not rounds.passes.get(target.name):
                continue
            more = {"threads": plan.threads, "blas": blas.chosen().name if target.mlx else "torch's own"}
            yield rows.record(target, plan.shape, workload, rounds, peak, more)
        if stopped:
            raise KeyboardInterrupt


def _peak(plan: Plan, messages: Messages) -> float:
    """Return the best rate of a matrix product on this machine, in operations per second."""
    job = {"warmup": 0, "steps": 0}
    (message,) = messages(sys.executable, "peak.py", job, threads=plan.threads)
    return float(max(message["rates"].values()))


def _round(
    plan: Plan, workload: Workload, number: int, rounds: Measured, progress: screen.Progress, messages: Messages
) -> None:
    """Run every target once and the reference at both ends; every second round runs backwards."""
    able = [t for t in plan.able(workload) if t.name not in rounds.failed]
    others = [(t.name, t) for t in able if t.name != REFERENCE]
    order = [(REFERENCE, TARGETS[REFERENCE]), *others, (AGAIN, TARGETS[REFERENCE])]
    for name, target in order if number % 2 == 0 else reversed(order):
        progress.start(f"{workload.name}, {plan.shape.name}, pass {number + 1} of {plan.passes}, {name}")
        if target.name not in rounds.failed:
            try:
                done = _pass(plan, workload, target, messages)
                into = rounds.again if name == AGAIN else rounds.passes.setdefault(name, {})
                into[number] = done
            except processes.TargetError as error:
                rounds.failed[target.name] = str(error)
        progress.end()


def _pass(plan: Plan, workload: Workload, target: Target, messages: Messages) -> Pass:
    job = rows.job(plan.shape, workload, workload.steps(plan.steps), plan.warmup, plan.threads)
    result = Pass()
    for message in messages(python(target), target.worker, job, threads=plan.threads, preload=target.mlx):
        result.take(message)
    return result
