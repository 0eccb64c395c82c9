"""Plans gate × subject × case, runs the plan on workers, and gives the verdicts: nobody else does."""

from __future__ import annotations

import math
import queue
import tempfile
import threading
import time
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gates.calibration_limits import Place
from gates.model import Case, Evidence, Gate, Outcome, Recipe, Status, Subject, Verdict, Wire
from gates.protocol import Hello, Worker, WorkerError
from gates.trial import Caller, OracleError, RunningTrial, SubjectFaultError, UnsupportedError

MODEL_HASH = "model_hash"  # an op that has no gate: it only says which bytes were judged
IN_PART = "in part: "  # how a subject says that its documentation explains a departure only partly: still a failure
UNCALIBRATED = "uncalibrated"  # the cause of an error: the limit of a claim is recorded for other backends only
REAL_MODEL_PATIENCE = 30.0  # times the limits of a case, when a real model replaces the tiny one


@dataclass(frozen=True, slots=True)
class Job:
    """One cell of the plan."""

    gate: Gate
    subject: Subject
    case: Case


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is run."""

    seed: int = 0
    jobs: int = 1
    threads: int = 1
    quick: bool = False
    full: bool = False  # all draws of statistical gates; without it a tenth
    model: str | None = None
    mutant: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what the worker said of itself and of the planted mistake while it was reached."""

    verdict: Verdict
    hello: Hello | None = None
    patched_calls: int = 0
    models: Mapping[str, Mapping[str, Wire]] = field(default_factory=dict)  # content hash → spec


def plan(gates: Iterable[Gate], subjects: Iterable[Subject], *, quick: bool) -> list[Job]:
    """Return every cell, the ones with the longest limits first, so that no worker is left alone with them in the end."""
    cells = [
        Job(gate, subject, case)
        for subject in subjects
        for gate in gates
        if subject.ops is None or all(op.name in subject.ops for op in gate.ops)
        for case in gate.cases
        if case.quick or not quick
    ]
    return sorted(cells, key=lambda job: -job.case.limit_s)


def case_seed(gate: Gate, case: Case, seed: int) -> int:
    """Return the seed of one case: a function of its names and the run's seed, so that selections change nothing."""
    return zlib.crc32(f"{gate.id}/{case.name}/{seed}".encode())


def run(jobs: list[Job], options: Options) -> Iterator[Judged]:
    """Judge every cell and yield each verdict as it is reached. Closing the iterator ends all workers."""
    pending = _Pending(jobs)
    done: queue.SimpleQueue[Judged | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    benches = [_Bench(options, pending, done, stop) for _ in range(max(1, min(options.jobs, len(jobs))))]
    for bench in benches:
        bench.thread.start()
    try:
        for _ in jobs:
            judged = done.get()
            if isinstance(judged, BaseException):
                raise judged
            yield judged
    finally:
        stop.set()
        for bench in benches:
            bench.end()


class _Pending:
    """The jobs not begun, handed out so that few subjects have to be started twice."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = list(jobs)
        self._begun: set[str] = set()
        self._lock = threading.Lock()

    def take(self, mine: Container[str]) -> Job | None:
        """Return a job of a subject that runs here, else of one that runs nowhere, else any; None when all are begun."""
        with self._lock:
            chosen = min(self._jobs, key=lambda job: self._cost(job.subject.name, mine), default=None)
            if chosen is not None:
                self._jobs.remove(chosen)
                self._begun.add(chosen.subject.name)
            return chosen

    def _cost(self, subject: str, mine: Container[str]) -> int:
        if subject in mine:
            return 0
        return 1 if subject not in self._begun else 2


@dataclass(slots=True)
class _Bench:
    """One thread with a worker of its own for each subject it meets."""

    options: Options
    pending: _Pending
    done: queue.SimpleQueue[Judged | BaseException]
    stop: threading.Event
    workers: dict[str, Worker] = field(default_factory=dict)
    failures: dict[str, WorkerError] = field(default_factory=dict)
    models: dict[str, Mapping[str, Wire]] = field(default_factory=dict)
    hashed: set[str] = field(default_factory=set)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def end(self) -> None:
        """End this bench's workers, in the middle of a call if need be."""
        self.thread.join(0.2)
        for worker in list(self.workers.values()):
            worker.close()

    def _serve(self) -> None:
        while not self.stop.is_set():
            job = self.pending.take(self.workers)
            if job is None:
                return
            try:
                self.done.put(self._judge(job))
            except BaseException as error:  # noqa: BLE001  handed to the main thread, which raises it
                if not self.stop.is_set():
                    self.done.put(error)

    def _judge(self, job: Job) -> Judged:
        try:
            worker = self._worker(job.subject)
        except WorkerError as error:
            status: Status = "skipped" if error.kind == "absent" else "fail"
            cause = "absent" if error.kind == "absent" else "start"
            seed = case_seed(job.gate, job.case, self.options.seed)
            reason = f"subject did not start: {error}" if cause == "start" else str(error)
            if cause == "absent" and job.subject.remedy:
                reason = f"{reason}; {job.subject.remedy}"
            return Judged(Verdict(job.gate.id, job.subject.name, job.case.name, seed, status, cause, reason))
        before = {id(worker): (worker, worker.patched_calls)}  # and every worker that takes over after a crash
        patience = REAL_MODEL_PATIENCE if self.options.model else 1.0

        def caller(
            op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
        ) -> Outcome:
            limit_s = job.case.limit_s * patience if kill_after_s is None else kill_after_s
            serving = self._worker(job.subject)
            before.setdefault(id(serving), (serving, 0))
            return serving.call(op, inputs, limit_s=limit_s, layout=layout)

        verdict = judge(job, caller, worker.hello, self.options)
        self._note_models(job)
        calls = sum(used.patched_calls - count for used, count in before.values())
        return Judged(verdict, worker.hello, calls, dict(self.models))

    def _note_models(self, job: Job) -> None:
        """Ask for the content hash of every model that a verdict rests on, once."""
        worker = self.workers[job.subject.name]
        if MODEL_HASH not in worker.hello.provides or not worker.alive:
            return
        made = _with_model(job.case.make(np.random.default_rng(0)), self.options.model)
        for recipe in made.values():
            if isinstance(recipe, Recipe) and recipe.kind == "model" and repr(recipe.spec) not in self.hashed:
                self.hashed.add(repr(recipe.spec))
                answer = worker.call(MODEL_HASH, {"model": recipe}, limit_s=60.0)
                if answer.kind == "value":
                    self.models[str(answer.value["hash"])] = recipe.spec

    def _worker(self, subject: Subject) -> Worker:
        if subject.name in self.failures:
            raise self.failures[subject.name]
        worker = self.workers.get(subject.name)
        if worker is None or not worker.alive:
            try:
                worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
            except WorkerError as error:
                self.failures[subject.name] = error
                raise
            self.workers[subject.name] = worker
        return worker


def judge(
    job: Job,
    caller: Caller,
    hello: Hello,
    options: Options,
) -> Verdict:
    """Reach the verdict of one cell, from what the check yields and what went wrong on the way."""
    seed = case_seed(job.gate, job.case, options.seed)
    base = Verdict(job.gate.id, job.subject.name, job.case.name, seed, "error", "nothing", "the gate measured nothing")
    if lacking := _lacking(job, hello):
        return replace(base, status="unsupported", cause="lacking", reason=lacking)
    start = time.monotonic()
    evidence: list[Evidence] = []
    status: Status
    try:
        inputs = _with_model(job.case.make(np.random.default_rng(seed)), options.model)
        with tempfile.TemporaryDirectory(prefix="gates-") as folder:
            trial = RunningTrial(
                job.gate, job.case, inputs, caller, Path(folder), not options.full, place=Place.of(hello.versions)
            )
            for item in job.gate.check(trial):
                evidence.append(item)  # noqa: PERF402  what was yielded before an exception is kept
        status, cause, reason = _decide(evidence)
    except UnsupportedError as error:
        status, cause, reason = "unsupported", "lacking", str(error)
    except SubjectFaultError as error:
        status, cause, reason = "fail", error.cause, str(error)
    except OracleError as error:
        status, cause, reason = "error", "oracle", str(error)
    except WorkerError as error:
        status, cause, reason = "fail", "start", f"subject did not start again: {error}"
    except Exception as error:  # noqa: BLE001  whatever a gate raises is the gate's error, and the run goes on
        status, cause, reason = "error", "gate", f"the gate raised {type(error).__name__}: {error}"
    documented = hello.documented.get(job.gate.name) if job.gate.name else None
    if status == "fail" and cause == "bound" and documented:  # an exception or a crash is nobody's choice
        if documented.startswith(IN_PART):
            reason = f"{reason}; documented {documented}"
        else:
            cause, reason = "departs", f"departs (documented: {documented}): {reason}"
    seconds = time.monotonic() - start
    return replace(base, status=status, cause=cause, reason=reason, evidence=tuple(evidence), seconds=round(seconds, 4))


def _decide(evidence: list[Evidence]) -> tuple[Status, str, str]:
    for item in evidence:
        if item.role == "signal" and not item.holds:
            return "error", "signal", f"no signal: {item.sentence()}"
    for item in evidence:
        if math.isnan(item.limit):  # nobody has measured what the limit is here, so nothing can be said
            return "error", UNCALIBRATED, item.because
    for item in evidence:
        if not item.holds:
            return "fail", "bound" if item.role == "claim" else "control", item.sentence()
    if not any(item.role == "claim" for item in evidence):
        return "error", "nothing", "the gate measured nothing"
    return "pass", "held", ""


def _lacking(job: Job, hello: Hello) -> str:
    for op in job.gate.ops:
        provided = hello.provides.get(op.name)
        if provided is None:
            return f"{op.name} is not defined by {job.subject.name}"
        for name, value in job.case.conventions.items():
            choices = provided.conventions.get(name)
            if choices is not None and value not in choices:
                shown = ", ".join(repr(choice) for choice in choices)
                return f"{op.name} of {job.subject.name} has {name} {shown}, not {value!r}"
    return ""


def _with_model(inputs: Mapping[str, Wire | Recipe], model: str | None) -> Mapping[str, Wire | Recipe]:
    if model is None:
        return inputs
    return {
        name: Recipe("model", {"path": model}) if isinstance(value, Recipe) and value.kind == "model" else value
        for name, value in inputs.items()
    }
