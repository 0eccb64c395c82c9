"""A place where cells are judged one after another, with a worker of its own for each subject it meets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.model import Outcome, Recipe, Status, Verdict, Wire
from gates.run import runner
from gates.run.oracle_cache import OracleCache
from gates.run.runner import Judged, Options, PlannedCase
from gates.worker.process import Worker, WorkerError

MODEL_HASH = "model_hash"  # an op that has no gate: it only says which bytes were judged
SEEDS = 10  # that a worker serves: what a subject leaks must not add up over a night, nor each seed pay for a start
REAL_MODEL_PATIENCE = 30.0  # times the limits of a case, when a real model replaces the tiny one


class Bench:
    """Judges cells. Close it in the end, from any thread, whatever happened."""

    def __init__(self, options: Options, answers: OracleCache | None = None) -> None:
        self.options = options
        self.workers: dict[str, Worker] = {}
        self._answers = answers or OracleCache()
        self._served: dict[str, set[int | None]] = {}  # by each worker: the seeds of its cells
        self._failures: dict[tuple[str, int | None], WorkerError] = {}  # a subject gets another chance at the next seed
        self._models: dict[str, Mapping[str, Wire]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._hashed: set[str] = set()

    def judge(self, job: PlannedCase) -> Judged:
        """Reach the verdict of one cell; a subject that does not start, or ends, is a verdict too."""
        try:
            self._relieve(job)
            worker = self._worker(job)
        except WorkerError as error:
            return Judged(self._not_started(job, error))
        before = {id(worker): (worker, worker.patched_calls)}  # and every worker that takes over after a crash
        patience = REAL_MODEL_PATIENCE if self.options.model else 1.0

        def caller(
            op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
        ) -> Outcome:
            limit_s = job.case.limit_s * patience if kill_after_s is None else kill_after_s
            serving = self._worker(job)
            before.setdefault(id(serving), (serving, 0))
            try:
                return serving.call(op, inputs, limit_s=limit_s, layout=layout)
            except BaseException:  # pytest's own timeout, Ctrl-C: a late answer must not be taken for the next call's
                serving.close()
                raise

        verdict = runner.judge(job, caller, worker.hello, self.options, self._answers)
        self._note_models(job)
        calls = sum(used.patched_calls - count for used, count in before.values())
        return Judged(verdict, worker.hello, calls, dict(self._models))

    def close(self) -> None:
        """End the workers, in the middle of a call if need be."""
        for worker in list(self.workers.values()):
            worker.close()

    def _not_started(self, job: PlannedCase, error: WorkerError) -> Verdict:
        status: Status = "skipped" if error.kind == "absent" else "fail"
        cause = "absent" if error.kind == "absent" else "start"
        seed = runner.seed_of(job, self.options)
        reason = f"subject did not start: {error}" if cause == "start" else str(error)
        if cause == "absent" and job.subject.remedy:
            reason = f"{reason}; {job.subject.remedy}"
        return Verdict(job.gate.id, job.subject.name, job.case.name, seed, status, cause, reason)

    def _note_models(self, job: PlannedCase) -> None:
        """Ask for the content hash of every model that a verdict rests on, once."""
        worker = self.workers[job.subject.name]
        if (job.gate.id, job.case.name) in self._noted:
            return
        if MODEL_HASH not in worker.hello.provides or not worker.alive:
            return
        self._noted.add((job.gate.id, job.case.name))
        made = runner.with_model(job.case.make(np.random.default_rng(0)), self.options.model)
        for recipe in made.values():
            if isinstance(recipe, Recipe) and recipe.kind == "model" and repr(recipe.spec) not in self._hashed:
                self._hashed.add(repr(recipe.spec))
                answer = worker.call(MODEL_HASH, {"model": recipe}, limit_s=60.0)
                if answer.kind == "value":
                    self._models[str(answer.value["hash"])] = recipe.spec

    def _relieve(self, job: PlannedCase) -> None:
        """End a worker that has served its seeds; the next one takes its place."""
        served = self._served.setdefault(job.subject.name, set())
        if job.seed not in served and len(served) >= SEEDS:
            served.clear()
            if job.subject.name in self.workers:
                self.workers[job.subject.name].close()
        served.add(job.seed)

    def _worker(self, job: PlannedCase) -> Worker:
        subject = job.subject
        if (subject.name, job.seed) in self._failures:
            raise self._failures[subject.name, job.seed]
        worker = self.workers.get(subject.name)
        if worker is None or not worker.alive:
            try:
                worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
            except WorkerError as error:
                self._failures[subject.name, job.seed] = error
                raise
            self.workers[subject.name] = worker
        return worker
