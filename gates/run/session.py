"""Conduct one run: header, verdicts, summary and exit code."""

from __future__ import annotations

import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import numpy as np

from gates.errors import ExitCode
from gates.model import (
    DEFAULT,
    DEFINITIONS,
    STATUSES,
    STRICT,
    ConfigurationError,
    Gate,
    Grade,
    Mutant,
    Status,
    Subject,
    Verdict,
    failing,
)
from gates.nearest import hint
from gates.provided import Provided
from gates.registry import selects
from gates.results import machine
from gates.results.integrity import HELD_BY
from gates.results.jsonl import Results, Writer
from gates.results.records import (
    HeaderRecord,
    Location,
    Machine,
    ModelRecord,
    PlanRecord,
    SettledRecord,
    SubjectRecord,
    SummaryRecord,
    VerdictRecord,
    WaiverRecord,
    verdict_record,
)
from gates.run.engines.interface import Engine
from gates.run.execute import in_order
from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase
from gates.run.resume import Resumed
from gates.run.settle import only_choices, settled_lines
from gates.run.unasked import Asked, provided
from gates.run.waivers import Waivers
from gates.worker.process import Hello

HELD, FAILED, USAGE, NOTHING = ExitCode.HELD, ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOTHING
FAULT, INTERRUPTED = ExitCode.FAULT, ExitCode.INTERRUPTED


@dataclass(frozen=True, slots=True)
class Requirement:
    """`--require`: a subject, or some of its gates, that must be judged."""

    subject: str
    gates: str | None = None

    @classmethod
    def parse(cls, text: str, subjects: Iterable[str]) -> Requirement:
        """Read `SUBJECT` or `SUBJECT:GATES`."""
        name, _, pattern = text.partition(":")
        if name not in (known := list(subjects)):
            raise ConfigurationError(
                f"--require {text}: {name!r} is not in this run; it judges {', '.join(known)}{hint(name, known)}"
            )
        return cls(name, pattern or None)

    def unmet_by(self, verdict: Verdict | VerdictRecord) -> bool:
        """Whether this verdict shows that a requirement was not judged."""
        holes = {"skipped"} if self.gates is None else {"skipped", "unsupported"}
        return self.names(verdict.subject, verdict.gate) and verdict.status in holes

    def names(self, subject: str, gate: str) -> bool:
        """Whether this subject at this gate is required."""
        if subject != self.subject:
            return False
        return self.gates is None or selects(self.gates, gate)


@dataclass(slots=True)
class Tally:
    """Counts of the verdicts so far, and further problems that fail the run."""

    counts: Counter[Status] = field(default_factory=Counter)
    holes: list[Verdict | VerdictRecord] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    hellos: dict[str, Hello] = field(default_factory=dict)  # the first handshake of each subject
    fail_on: Grade = DEFAULT  # the mildest grade that fails the run
    asked: Asked = field(default_factory=Asked)
    provides: dict[str, Mapping[str, Provided]] = field(default_factory=dict)  # of each subject that started
    partial: bool = False  # a shard cannot tell what the others asked
    differing: frozenset[tuple[str, str]] = frozenset()  # subjects and wrong ops that make another known choice
    wrong: list[Verdict | VerdictRecord] = field(default_factory=list)  # the wrong verdicts
    meant: set[tuple[str, str]] = field(
        default_factory=set
    )  # wrong ops of which a waiver of `differs` covers a verdict
    unmeant: set[tuple[str, str]] = field(default_factory=set)  # those with a verdict that none covers

    def add(
        self,
        verdict: Verdict | VerdictRecord,
        requirements: Iterable[Requirement] = (),
        waivers: Waivers | None = None,
    ) -> None:
        """Count a verdict; `waivers` may waive a wrong one once its op turns out to differ."""
        self.counts[verdict.status] += 1
        self.asked.add(verdict)
        if verdict.status == "wrong":
            self.wrong.append(verdict)
            waived = waivers is not None and waivers.waived(verdict, "differs") is not None
            (self.meant if waived else self.unmeant).add((verdict.subject, verdict.op))
        if any(requirement.unmet_by(verdict) for requirement in requirements):
            self.holes.append(verdict)

    @property
    def problems(self) -> list[str]:
        """A sentence for each problem that fails the run apart from its verdicts."""
        return [
            *(f"required, but {x.status}: {x.subject} · {x.gate} · {x.case}: {x.reason}" for x in self.holes),
            *self.stale,
        ]

    @property
    def unasked(self) -> list[str]:
        """A sentence for each op that a subject provides and that no case judged."""
        every = [] if self.partial else sorted(self.provides.items())
        return [text for name, provides in every for text in self.asked.sentences(name, provides)]

    def exit_code(self) -> int:
        """Return 1 if a subject or a requirement failed, 4 if a gate or the oracle did, else 0.

        3 if nothing was measured, or nothing of an op that a subject provides.
        """
        met = {status for status, count in self.counts.items() if count and status != "wrong"} | self._settled
        if self.problems or met & failing(self.fail_on):
            return FAILED
        if "error" in met:
            return FAULT
        measured = any(status in met for status in HELD_BY)
        return HELD if measured and not self.unasked else NOTHING

    @property
    def _settled(self) -> set[Status]:
        """What the wrong verdicts are once their ops are diagnosed: wrong, another choice, or waived as such."""
        if not self.counts["wrong"]:
            return set()
        if not self.wrong:  # counted without their verdicts, of which no op can be told to differ
            return {"wrong"}
        ops = {(verdict.subject, verdict.op) for verdict in self.wrong}
        choices = only_choices(self.wrong, self.differing)
        statuses: set[Status] = {"wrong"} if ops - choices else set()
        statuses |= {"differs"} if self.unmeant & choices else set()
        return statuses | ({"waived"} if self.meant & choices else set())

    def line(self) -> str:
        """Return the last line of a run: the counts of correct, wrong, and any other status that occurred."""
        shown = [s for s in STATUSES if s in {"correct", "wrong"} or self.counts[s]]
        plural = {s: f"{s}s" if s in {"error", "timeout"} and self.counts[s] != 1 else s for s in shown}
        return ", ".join(f"{self.counts[s]} {plural[s]}" for s in shown)


def tool_version() -> str:
    """Return `rl-gates` and its version."""
    try:
        return f"rl-gates {version('rl-gates')}"
    except PackageNotFoundError:
        return "rl-gates (not installed)"


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The content of a results file's header, except the machine."""

    verb: Literal["check", "prove", "calibrate"]
    command: list[str]
    gates: Sequence[Gate]
    subjects: Sequence[Subject]
    options: Options
    planned: int  # number of verdicts
    plan: PlanRecord | None = None
    waivers: Sequence[WaiverRecord] = ()
    engine: str = "local"
    seeds: int | None = None  # of a calibration
    fail_on: Grade = STRICT
    subject_files: Mapping[str, str] = field(default_factory=dict)
    mutants: Iterable[Mutant] = ()  # of the catalogue, so that a report can count those that a pass excludes


def header(info: RunInfo) -> HeaderRecord:
    """Return the first line of a results file."""
    cpu, features = machine.cpu()
    commit, dirty = machine.commit()
    options = info.options
    return HeaderRecord(
        verb=info.verb,
        command=info.command,
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
        fail_on=info.fail_on,
        time_limit=options.time_limit,
        definitions=DEFINITIONS,
        model=options.model,
        gates=[gate.id for gate in info.gates],
        subjects=[subject.name for subject in info.subjects],
        planned=info.planned,
        engine=info.engine,
        plan=info.plan,
        waivers=list(info.waivers),
        seeds=info.seeds,
        subject_files=dict(info.subject_files),
        mutants=_caught(info),
    )


def _caught(info: RunInfo) -> dict[str, list[str]]:
    """Return the mutants that each gate of a run must catch."""
    mutants = sorted(info.mutants, key=lambda mutant: mutant.name)
    caught = {gate.id: [m.name for m in mutants if gate.id in m.caught_by] for gate in info.gates}
    return {gate: names for gate, names in caught.items() if names}


def file_digests(subjects: Iterable[Subject], shipped: Container[str]) -> dict[str, str]:
    """Return a digest of the file of each subject that is not part of this checkout."""
    digests: dict[str, str] = {}
    for subject in subjects:
        if subject.name not in shipped and subject.entry.is_file():
            with subject.entry.open("rb") as file:
                digests[subject.name] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return digests


def subject_record(name: str, hello: Hello) -> SubjectRecord:
    """Return a subject's handshake as a results line."""
    return SubjectRecord(
        subject=name,
        provides=sorted(hello.provides),
        versions=dict(hello.versions),
        locations={op: Location(file=file, line=line) for op, (file, line) in hello.locations.items()},
    )


class HandshakeRecords:
    """The lines of a results file about subjects and models, each written once.

    A subject whose report changes, such as its version after a run was resumed, gets a second line, because the verdicts
    of the file depend on both.
    """

    def __init__(self, before: Results | None = None) -> None:
        self._subjects = list(before.subjects) if before else []
        self._models = {record.hash for record in before.models} if before else set()
        self._latest: dict[str, Hello] = {}  # of each subject; a worker reports one object

    def new(self, judged: Judged) -> Iterator[SubjectRecord | ModelRecord]:
        """Yield the lines that must precede this verdict."""
        name, hello = judged.verdict.subject, judged.hello
        if hello is not None and self._latest.get(name) is not hello:
            self._latest[name] = hello
            record = subject_record(name, hello)
            if record not in self._subjects:
                self._subjects.append(record)
                yield record
        for digest, spec in judged.models.items():
            if digest not in self._models:
                self._models.add(digest)
                yield ModelRecord(spec=dict(spec), hash=digest)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The cases that `check` judges, with callbacks."""

    cases: Sequence[PlannedCase]  # of a resumed run the remaining ones
    options: Options
    writer: Writer | None = None
    requirements: tuple[Requirement, ...] = ()
    on_verdict: Callable[[Verdict], None] = lambda verdict: None  # noqa: ARG005  no callback
    on_hello: Callable[[str, Hello], None] = lambda name, hello: None  # noqa: ARG005  called for the first of each subject
    engine: Engine | None = None  # None: this machine's workers
    resumed: Resumed | None = None
    waivers: Waivers = field(default_factory=Waivers)
    fail_on: Grade = DEFAULT
    before_summary: Callable[[], Collection[tuple[str, str]]] = tuple
    """Called after the last verdict; may write lines, and returns subjects and wrong ops that make another known choice."""


def check(request: CheckRequest) -> Tally:
    """Judge every case, write each verdict before it is shown, and return the tally, earlier verdicts included.

    Verdicts that were written survive Ctrl-C.
    """
    tally = Tally(fail_on=request.fail_on)
    writer, waivers, resumed = request.writer, request.waivers, request.resumed
    handshakes = HandshakeRecords(resumed.earlier if resumed else None)
    tally.partial = waivers.partial
    for verdict in resumed.verdicts if resumed else ():
        waivers.note(verdict)
        tally.add(verdict, request.requirements, waivers)
    tally.provides.update(provided(resumed.earlier.subjects) if resumed else {})
    start = time.monotonic()
    for unwaived in in_order(request.cases, request.options, request.engine, resumed.verdicts if resumed else ()):
        judged = replace(unwaived, verdict=waivers.apply(unwaived.verdict))
        if judged.hello and judged.verdict.subject not in tally.hellos:
            tally.hellos[judged.verdict.subject] = judged.hello
            tally.provides[judged.verdict.subject] = judged.hello.provides
            request.on_hello(judged.verdict.subject, judged.hello)
        if writer:
            for record in (*handshakes.new(judged), verdict_record(judged.verdict)):
                writer.write(record)
        tally.add(judged.verdict, request.requirements, waivers)
        request.on_verdict(judged.verdict)
    tally.differing = frozenset(request.before_summary())
    tally.stale = waivers.problems(only_choices(tally.wrong, tally.differing))
    if writer:
        finish(writer, tally, time.monotonic() - start, settled=settled_lines(tally.wrong, tally.differing, waivers))
    return tally


def finish(
    writer: Writer, tally: Tally, seconds: float, exit_code: int | None = None, settled: Sequence[SettledRecord] = ()
) -> None:
    """Write what the diagnoses settled, and the summary, which makes a results file complete."""
    counts = {status: tally.counts[status] for status in STATUSES}
    code = tally.exit_code() if exit_code is None else exit_code
    writer.write(
        *settled,
        SummaryRecord(
            counts=counts, seconds=round(seconds, 3), exit_code=code, problems=tally.problems, unasked=tally.unasked
        ),
    )
