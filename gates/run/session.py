"""One run: header, verdicts as they come, summary; and what its end means for the exit code."""

from __future__ import annotations

import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import numpy as np

from gates.model import STATUSES, ConfigurationError, Gate, Status, Subject, Verdict
from gates.results.jsonl import Results, Writer
from gates.results.records import (
    HeaderRecord,
    Machine,
    ModelRecord,
    PlanRecord,
    SubjectRecord,
    SummaryRecord,
    verdict_record,
)
from gates.run import machine
from gates.run.engines.interface import Engine
from gates.run.resume import Resumed
from gates.run.runner import Judged, Options, PlannedCase, run
from gates.run.waivers import Waivers
from gates.worker.process import Hello

HELD, FAILED, USAGE, NOTHING, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True, slots=True)
class Requirement:
    """A subject, or some of its gates, that must have been judged."""

    subject: str
    gates: str | None = None

    @classmethod
    def parse(cls, text: str, subjects: Iterable[str]) -> Requirement:
        """Read `SUBJECT` or `SUBJECT:GATES`."""
        name, _, pattern = text.partition(":")
        if name not in (known := list(subjects)):
            raise ConfigurationError(f"--require {text}: {name!r} is not in this run; it judges {', '.join(known)}")
        return cls(name, pattern or None)

    def unmet_by(self, verdict: Verdict) -> bool:
        """Whether this verdict is a hole in what was required."""
        holes = {"skipped"} if self.gates is None else {"skipped", "unsupported"}
        return self.names(verdict.subject, verdict.gate) and verdict.status in holes

    def names(self, subject: str, gate: str) -> bool:
        """Whether it is about this subject at this gate."""
        if subject != self.subject:
            return False
        return self.gates is None or fnmatchcase(gate, self.gates) or gate.startswith(f"{self.gates}.")


@dataclass(slots=True)
class Tally:
    """What has been judged so far."""

    counts: Counter[Status] = field(default_factory=Counter)
    holes: list[Verdict] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    hellos: dict[str, Hello] = field(default_factory=dict)  # what each subject said of itself first

    @property
    def problems(self) -> list[str]:
        """Return what fails the run beside its verdicts, a sentence each."""
        return [*(f"required, but {hole.status}: {hole.where}: {hole.reason}" for hole in self.holes), *self.stale]

    def exit_code(self) -> int:
        """Return what the run means: 0 all held, 1 not all, 3 nothing was measured."""
        if self.problems or self.counts["fail"] or self.counts["error"]:
            return FAILED
        return HELD if self.counts["pass"] or self.counts["waived"] else NOTHING

    def line(self) -> str:
        """Return the last line of a run: passed and failed always, the others when there are any."""
        words = {"pass": "passed", "fail": "failed", "error": "errors"}
        shown = [s for s in STATUSES if s in {"pass", "fail"} or self.counts[s]]
        plural = {s: words.get(s, s) for s in shown}
        if self.counts["error"] == 1:
            plural["error"] = "error"
        return ", ".join(f"{self.counts[s]} {plural[s]}" for s in shown)


def tool_version() -> str:
    """Return `rl-gates` and its version."""
    try:
        return f"rl-gates {version('rl-gates')}"
    except PackageNotFoundError:
        return "rl-gates (not installed)"


def header(  # noqa: PLR0913, PLR0917  the first line says all that a run is
    verb: Literal["check", "prove", "calibrate"],
    command: list[str],
    gates: Iterable[Gate],
    subjects: Iterable[Subject],
    options: Options,
    planned: int,
    part: PlanRecord | None = None,
    waivers: Waivers | None = None,
    engine: str = "local",
    seeds: int | None = None,
) -> HeaderRecord:
    """Return the first line of a results file."""
    cpu, features = machine.cpu()
    commit, dirty = machine.commit()
    return HeaderRecord(
        verb=verb,
        command=command,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        tool=tool_version(),
        commit=commit,
        dirty=dirty,
        machine=Machine(system=platform.platform(), cpu=cpu, cores=machine.cores(), features=features),
        python=platform.python_version(),
        numpy=np.__version__,
        blas=machine.blas(),
        jobs=options.jobs,
        threads=options.threads,
        seed=options.seed,
        quick=options.quick,
        full=options.full,
        model=options.model,
        gates=[gate.id for gate in gates],
        subjects=[subject.name for subject in subjects],
        planned=planned,
        engine=engine,
        plan=part,
        waivers=list(waivers.entries) if waivers else [],
        seeds=seeds,
    )


def file_digests(subjects: Iterable[Subject], shipped: Container[str]) -> dict[str, str]:
    """Return a digest of the file of each subject that the commit of the judge does not tell."""
    found: dict[str, str] = {}
    for subject in subjects:
        if subject.name not in shipped and subject.entry.is_file():
            with subject.entry.open("rb") as file:
                found[subject.name] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return found


def subject_record(name: str, hello: Hello) -> SubjectRecord:
    """Return a subject's own words as a line."""
    return SubjectRecord(subject=name, provides=sorted(hello.provides), versions=dict(hello.versions))


class Told:
    """What a results file says of subjects and models beside the verdicts, each once.

    A subject that says something else than before, such as another version after a run was resumed, is told again: its
    verdicts rest on both.
    """

    def __init__(self, before: Results | None = None) -> None:
        self._subjects = list(before.subjects) if before else []
        self._models = {record.hash for record in before.models} if before else set()
        self._last: dict[str, Hello] = {}  # of each subject: the same worker says the same

    def new(self, judged: Judged) -> Iterator[SubjectRecord | ModelRecord]:
        """Yield the lines that a verdict brings."""
        name, hello = judged.verdict.subject, judged.hello
        if hello is not None and self._last.get(name) is not hello:
            self._last[name] = hello
            record = subject_record(name, hello)
            if record not in self._subjects:
                self._subjects.append(record)
                yield record
        for digest, spec in judged.models.items():
            if digest not in self._models:
                self._models.add(digest)
                yield ModelRecord(spec=dict(spec), hash=digest)


def check(  # noqa: PLR0913, PLR0917  a run has that many parts, and one caller
    jobs: list[PlannedCase],
    options: Options,
    writer: Writer | None,
    requirements: tuple[Requirement, ...],
    on_verdict: Callable[[Verdict], None],
    engine: Engine | None = None,
    resumed: Resumed | None = None,
    waivers: Waivers | None = None,
    before_summary: Callable[[], None] = lambda: None,
) -> Tally:
    """Judge the plan and write every verdict before it is shown. Ctrl-C leaves what was written.

    Of a run that is resumed `jobs` are those that were left; the tally counts the earlier verdicts too.
    `before_summary` runs when all is judged, for lines that stand before the last one.
    """
    tally = Tally()
    waivers = waivers or Waivers()
    told = Told(resumed.earlier if resumed else None)

    def count(verdict: Verdict) -> None:
        tally.counts[verdict.status] += 1
        if any(requirement.unmet_by(verdict) for requirement in requirements):
            tally.holes.append(verdict)

    for verdict in resumed.verdicts if resumed else ():
        waivers.note(verdict)
        count(verdict)
    start = time.monotonic()
    for found in run(jobs, options, engine):
        judged = replace(found, verdict=waivers.apply(found.verdict))
        if judged.hello:
            tally.hellos.setdefault(judged.verdict.subject, judged.hello)
        if writer:
            for record in (*told.new(judged), verdict_record(judged.verdict)):
                writer.write(record)
        count(judged.verdict)
        on_verdict(judged.verdict)
    tally.stale = waivers.problems()
    before_summary()
    if writer:
        finish(writer, tally, time.monotonic() - start)
    return tally


def finish(writer: Writer, tally: Tally, seconds: float, exit_code: int | None = None) -> None:
    """Write the line that makes a results file complete."""
    counts = {status: tally.counts[status] for status in STATUSES}
    code = tally.exit_code() if exit_code is None else exit_code
    writer.write(SummaryRecord(counts=counts, seconds=round(seconds, 3), exit_code=code, problems=tally.problems))
