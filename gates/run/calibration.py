"""Calibrate gates: judge correct subjects at many seeds; each failure and each error is a false positive.

A calibration is a check at many seeds. Its file has a line for each gate, subject and block of seeds instead of one for
each verdict. An interrupted run is resumed in its own file.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gates.model import Verdict
from gates.results.jsonl import Results, Writer, read
from gates.results.records import HeaderRecord
from gates.run import execute
from gates.run.calibration_summary import KINDS, Key, Line, Platform, commit_label, done, summary_record
from gates.run.engines.interface import Engine, Executor
from gates.run.judge import TIMEOUT, Judged
from gates.run.plan import Options, PlannedCase
from gates.run.resume import FREE, refuse_other
from gates.run.session import HandshakeRecords

# The summary may have grown since, which leaves fewer seeds; the digests in `codes` are more precise than `dirty`.
MAY_DIFFER = FREE | {"planned", "dirty"}
FINISHED_MAY_DIFFER = frozenset(HeaderRecord.model_fields) - {
    "verb",
    "seed",
    "seeds",
    "quick",
    "full",
    "gates",
    "subjects",
    "beside",
}
Shown = Callable[[int], AbstractContextManager[Callable[[int, Verdict], None]]]
"""Opens the progress display for a number of verdicts; the display is called with each seed and verdict."""


@dataclass(frozen=True, slots=True)
class Request:
    """The plan of a calibration."""

    cases: Sequence[PlannedCase]
    options: Options
    seeds: range
    block: int
    header: HeaderRecord
    engine: Engine | None = None  # None: the workers of this machine
    recorded: Mapping[Key, set[int]] = field(default_factory=dict)  # seeds to skip


def missing(
    cases: Iterable[PlannedCase], seeds: Iterable[int], *known: Mapping[Key, set[int]]
) -> Iterator[PlannedCase]:
    """Yield every case at every seed that no mapping in `known` has, seed by seed."""
    planned = [(case.names, case) for case in cases]
    for seed in seeds:
        yield from (replace(case, seed=seed) for key, case in planned if not any(seed in k.get(key, ()) for k in known))


def conduct(request: Request, path: Path, shown: Shown) -> Results:
    """Judge the seeds that the file lacks, write its summary line, and return its content.

    Raises:
        ConfigurationError: the file belongs to another run; or it is incomplete and belongs to another commit, code or
            machine, so that its seeds and the remaining ones would be judged by different gates. The commit alone is not
            enough: files may have been edited since.
    """
    start = time.monotonic()
    writer = Writer.again(path)
    try:
        if path.stat().st_size == 0:
            writer.write(request.header)
        before = read(path)
        refuse_other(path, before.header, request.header, MAY_DIFFER if before.summary is None else FINISHED_MAY_DIFFER)
        if before.summary is None:
            writer.cut()  # after reading: a file of another program loses nothing
            _judge(request, writer, before, shown)
            writer.write(summary_record(read(path).calibrations, time.monotonic() - start))
    finally:
        writer.close()
    return read(path)


def _judge(request: Request, writer: Writer, before: Results, shown: Shown) -> None:
    """Judge every case at every seed that neither the file nor the summary has, and write the lines of each block.

    A single executor lets a worker serve several seeds. The workers of this machine judge one seed after the other. Another
    engine receives a block at once, because it may have more processors than a seed has cases. After Ctrl-C the lines of
    all judged seeds are written too.
    """
    known = (request.recorded, done(before, request.header, KINDS))
    left = sum(1 for _ in missing(request.cases, request.seeds, *known))
    step = 1 if request.engine is None else request.block
    handshakes = HandshakeRecords(before)
    platforms: dict[str, Platform] = {}
    with execute.opened(request.options, request.engine) as executor, shown(left) as show:
        for start in range(0, len(request.seeds), request.block):
            block = request.seeds[start : start + request.block]
            lines: dict[tuple[str, str, Platform], Line] = defaultdict(Line)
            try:
                for first in range(0, len(block), step):
                    cases = list(missing(request.cases, block[first : first + step], *known))
                    for judged, retried in _verdicts(executor, cases, request):
                        for record in handshakes.new(judged):
                            writer.write(record)
                        verdict, seed = judged.verdict, _seed(judged)
                        if judged.hello:
                            platforms[verdict.subject] = Platform.of(judged.hello.versions)
                        platform = platforms.get(verdict.subject, Platform())
                        lines[verdict.gate, verdict.subject, platform].count(verdict, seed, retried=retried)
                        show(seed, verdict)
            finally:
                _write(writer, lines, request.header)


def _write(writer: Writer, lines: Mapping[tuple[str, str, Platform], Line], header: HeaderRecord) -> None:
    """Write the lines of a block together."""
    for line in lines.values():
        line.commits[commit_label(header)] = None
    writer.write(*(lines[key].record(*key, header.machine.cpu, full=header.full) for key in sorted(lines, key=str)))


def _seed(judged: Judged) -> int:
    if judged.seed is None:
        raise TypeError("an executor must return the seed of each case of a calibration")
    return judged.seed


def _verdicts(executor: Executor, cases: Sequence[PlannedCase], request: Request) -> Iterator[tuple[Judged, bool]]:
    """Yield each verdict and whether it was retried: a case that timed out is judged a second time, which counts.

    A pause of the machine is not evidence against a gate; a subject that hangs does so twice.
    """
    timed_out: set[tuple[Key, int]] = set()
    executor.submit(cases)
    for judged in executor.judged():
        verdict = judged.verdict
        if verdict.cause == TIMEOUT:
            timed_out.add(((verdict.gate, verdict.subject, verdict.case), _seed(judged)))
        else:
            yield judged, False
    retries = [case for case in cases if (case.names, case.seed) in timed_out]
    for judged in execute.run(retries, replace(request.options, jobs=1), request.engine) if retries else ():
        yield judged, True
