"""Calibrate gates: judge correct subjects at many seeds, where each failure and each error is a false positive.

A calibration is a check at many seeds. Its file has a line for each gate, subject and block of seeds instead of one for
each verdict, and a run that was stopped goes on in its own file.
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
from gates.run.calibration_summary import KINDS, Key, Line, Place, commit_words, done, summary_record
from gates.run.engines.interface import Engine, Executor
from gates.run.judge import TIMEOUT, Judged
from gates.run.plan import Options, PlannedCase
from gates.run.resume import FREE, refuse_other
from gates.run.session import HandshakeRecords

# A summary that grew since leaves fewer seeds; the digests of `codes` say more than `dirty`.
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
"""Opens the display of so many verdicts, which is called with the seed and the verdict of each."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    cases: Sequence[PlannedCase]
    options: Options
    seeds: range
    block: int
    header: HeaderRecord
    engine: Engine | None = None  # None: this machine's workers
    recorded: Mapping[Key, set[int]] = field(default_factory=dict)  # seeds that are not judged again


def lacking(
    cases: Iterable[PlannedCase], seeds: Iterable[int], *known: Mapping[Key, set[int]]
) -> Iterator[PlannedCase]:
    """Yield every case at every seed that is not known, seed by seed."""
    planned = [(case.names, case) for case in cases]
    for seed in seeds:
        yield from (replace(case, seed=seed) for key, case in planned if not any(seed in k.get(key, ()) for k in known))


def conduct(request: Request, path: Path, shown: Shown) -> Results:
    """Judge what the file lacks, write the line that ends it, and return what it holds.

    Raises:
        ConfigurationError: if the file is of another run; or, unless it is complete, of another commit, code or machine,
            because the seeds that are left would be of other gates than those that are there. The commit alone is not
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

    One executor judges all of it, so that a worker serves several seeds. This machine's workers judge one seed after the
    other. Another engine is given a block at once, because it may have more processors than a seed has cases. After Ctrl-C
    the lines of the seeds that were judged are written too.
    """
    known = (request.recorded, done(before, request.header, KINDS))
    left = sum(1 for _ in lacking(request.cases, request.seeds, *known))
    step = 1 if request.engine is None else request.block
    handshakes = HandshakeRecords(before)
    places: dict[str, Place] = {}
    with execute.opened(request.options, request.engine) as executor, shown(left) as show:
        for start in range(0, len(request.seeds), request.block):
            block = request.seeds[start : start + request.block]
            lines: dict[tuple[str, str, Place], Line] = defaultdict(Line)
            try:
                for first in range(0, len(block), step):
                    cases = list(lacking(request.cases, block[first : first + step], *known))
                    for judged, retried in _verdicts(executor, cases, request):
                        for record in handshakes.new(judged):
                            writer.write(record)
                        verdict, seed = judged.verdict, _seed(judged)
                        if judged.hello:
                            places[verdict.subject] = Place.of(judged.hello.versions)
                        place = places.get(verdict.subject, Place())
                        lines[verdict.gate, verdict.subject, place].see(verdict, seed, retried=retried)
                        show(seed, verdict)
            finally:
                _write(writer, lines, request.header)


def _write(writer: Writer, lines: Mapping[tuple[str, str, Place], Line], header: HeaderRecord) -> None:
    """Write the lines of a block at once."""
    for line in lines.values():
        line.commits[commit_words(header)] = None
    writer.write(*(lines[key].record(*key, header.machine.cpu, full=header.full) for key in sorted(lines, key=str)))


def _seed(judged: Judged) -> int:
    if judged.seed is None:
        raise TypeError("the cases of a calibration have seeds, and an executor returns them")
    return judged.seed


def _verdicts(executor: Executor, cases: Sequence[PlannedCase], request: Request) -> Iterator[tuple[Judged, bool]]:
    """Yield each verdict and whether it was retried. What ran out of time is judged once more in the end, and that counts.

    A machine that stood still for a minute says nothing of a gate; a subject that hangs does so twice.
    """
    late: set[tuple[Key, int]] = set()
    executor.submit(cases)
    for judged in executor.judged():
        verdict = judged.verdict
        if verdict.cause == TIMEOUT:
            late.add(((verdict.gate, verdict.subject, verdict.case), _seed(judged)))
        else:
            yield judged, False
    again = [case for case in cases if (case.names, case.seed) in late]
    for judged in execute.run(again, replace(request.options, jobs=1), request.engine) if again else ():
        yield judged, True
