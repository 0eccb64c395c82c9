"""One calibration from its first line to its last, new or resumed, and what is said of it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gates import calibration, calibration_limits, calibration_renewal
from gates.calibration import Clock, Progress
from gates.calibration_file import resumed
from gates.calibration_past import Past
from gates.model import STATUSES, Gate, Verdict
from gates.report import calibration_text
from gates.report.progress import Bar, console
from gates.results.escape import one_line, visible
from gates.results.jsonl import Results, Writer, read
from gates.results.records import HeaderRecord, SummaryRecord
from gates.run.engines.interface import Engine
from gates.run.plan import Options, PlannedCase


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    gates: Sequence[Gate]
    cells: Sequence[PlannedCase]
    options: Options
    seeds: range
    block: int
    header: HeaderRecord
    write_limits: bool
    proofs: Path
    engine: Engine | None = None  # None: this machine's workers
    past: Past = field(default_factory=Past)  # what other files hold


def conduct(request: Request, path: Path, *, as_json: bool) -> int:
    """Judge what the file lacks, say what was found, and return the exit code."""
    start = time.monotonic()
    writer = Writer.again(path)
    try:
        if path.stat().st_size == 0:
            writer.write(request.header)
        before = resumed(path, request.header)
        if before.summary is None:
            writer.cut()  # after reading: a file that is none of ours loses nothing
            _judge(request, writer, before, quiet=as_json)
        results = read(path)
        defects = _limits(request, results)
        code = calibration.exit_code(results.blocks, defects, writes_limits=request.write_limits)
        if before.summary is None:
            counts = {status: calibration.totals(results.blocks)[status] for status in STATUSES}
            seconds = round(time.monotonic() - start, 3)
            writer.write(SummaryRecord(counts=counts, seconds=seconds, exit_code=code, problems=list(defects)))
    finally:
        writer.close()
    show = console()
    for line in (
        path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        if as_json
        else calibration_text.lines(results, defects)
    ):
        show.print(visible(line), markup=False)
    return code


def _judge(request: Request, writer: Writer, before: Results, *, quiet: bool) -> None:
    left = request.header.planned - sum(block.seeds for block in before.blocks)
    clock = Clock(left)
    with Bar("calibrating", left) as bar:

        def tell(progress: Progress, verdict: Verdict | None) -> None:
            words = f"seed {progress.seed}, {progress.alarms} alarms, {clock.left(progress.verdicts)} left"
            if verdict is not None:
                if calibration.is_alarm(verdict) and not quiet:
                    bar.say(one_line(f"FALSE ALARM at seed {progress.seed}: {verdict.where}: {verdict.reason}"))
                bar.advance(words)
            elif not bar.live and not quiet:
                bar.say(f"{words}: {progress.verdicts} of {left} verdicts")

        log, own = calibration.Log(writer, before), calibration.judged(before.blocks)
        done = {
            key: own.get(key, set()) | request.past.seeds.get(key, frozenset())
            for key in map(calibration.key, request.cells)
        }
        args = (request.cells, request.seeds, request.block, request.options)
        calibration.calibrate(*args, log, done, tell, request.engine)


def _limits(request: Request, results: Results) -> list[str]:
    """Write the limits if that was asked for, and return what is wrong with those that these gates have."""
    limits = calibration_limits.load()
    if request.write_limits:
        proved = calibration_renewal.proofs(request.proofs)
        limits = calibration_limits.renewed(limits, calibration_renewal.entries(request.gates, results, proved))
        calibration_limits.write(limits)
    ids = {gate.id for gate in request.gates}
    return [defect for entry in limits.limits if entry.gate in ids and (defect := entry.defect())]
