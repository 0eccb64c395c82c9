"""Judge cases one after another, with one worker process for each subject."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.model import Outcome, Recipe, Status, Verdict, Wire
from gates.run.inputs import with_model
from gates.run.judge import Judged, judge
from gates.run.oracle_cache import Answers, OracleCache
from gates.run.plan import Options, PlannedCase, seed_of
from gates.worker.process import Worker, WorkerError

MODEL_HASH = "model_hash"  # an op without a gate that identifies the judged weights
SEEDS = 10  # seeds that one worker serves: bounds the memory that a subject leaks, without a new process for each seed
REAL_MODEL_PATIENCE = 30.0  # factor on the time limits of a case with a real model


class SubjectWorkers:
    """Keeps a worker for each subject and judges cases with them. `close` may be called from any thread."""

    def __init__(self, options: Options, cached: OracleCache | None = None, answers: Answers | None = None) -> None:
        self.options = options
        self.workers: dict[str, Worker] = {}
        self._cached = cached or OracleCache()
        self._answers = None if options.mutant else answers or Answers()  # a mutant must run in every case
        self._served: dict[str, set[int | None]] = {}  # the seeds that each worker has served
        self._failures: dict[tuple[str, int | None], WorkerError] = {}  # the next seed starts the subject again
        self._models: dict[str, Mapping[str, Wire]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._hashed: set[str] = set()

    def judge(self, planned: PlannedCase) -> Judged:
        """Return the verdict of one case, even if the subject does not start or exits."""
        try:
            self._retire(planned)
            worker = self._worker(planned)
        except WorkerError as error:
            return Judged(self._not_started(planned, error))
        before = {id(worker): (worker, worker.patched_calls)}  # and of workers that replace crashed ones
        patience = REAL_MODEL_PATIENCE if self.options.model else 1.0

        def caller(
            op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
        ) -> Outcome:
            limit_s = planned.case.limit_s * patience if kill_after_s is None else kill_after_s
            serving = self._worker(planned)
            before.setdefault(id(serving), (serving, 0))
            try:
                return serving.call(op, inputs, limit_s=limit_s, layout=layout)
            except BaseException:  # Ctrl-C, a timeout of pytest: the next call must not get this one's late answer
                serving.close()
                raise

        verdict = judge(planned, caller, worker.hello, self.options, self._cached, self._answers)
        self._note_models(planned)
        calls = sum(used.patched_calls - count for used, count in before.values())
        return Judged(verdict, worker.hello, calls, dict(self._models))

    def close(self) -> None:
        """End the workers, even in mid-call."""
        for worker in list(self.workers.values()):
            worker.close()

    def _not_started(self, planned: PlannedCase, error: WorkerError) -> Verdict:
        started: dict[str, Status] = {"absent": "skipped", "scarce": "error"}
        status = started.get(error.kind, "raises")
        cause = "absent" if error.kind == "absent" else "start"
        reason = f"subject did not start: {error}" if cause == "start" else str(error)
        if error.kind == "scarce":
            reason = f"{reason}; raise the limits of this shell (ulimit -a) or free some space"
        if cause == "absent" and planned.subject.remedy:
            reason = f"{reason}; {planned.subject.remedy}"
        return Verdict(
            *planned.names, seed_of(planned, self.options), status, cause, reason, op=planned.gate.graded(planned.case)
        )

    def _note_models(self, planned: PlannedCase) -> None:
        """Ask once for the content hash of every model that the verdicts depend on."""
        worker = self.workers[planned.subject.name]
        if (planned.gate.id, planned.case.name) in self._noted:
            return
        if MODEL_HASH not in worker.hello.provides or not worker.alive:
            return
        self._noted.add((planned.gate.id, planned.case.name))
        inputs = with_model(planned.case.make(np.random.default_rng(0)), self.options.model)
        for recipe in inputs.values():
            if isinstance(recipe, Recipe) and recipe.kind == "model" and repr(recipe.spec) not in self._hashed:
                self._hashed.add(repr(recipe.spec))
                answer = worker.call(MODEL_HASH, {"model": recipe}, limit_s=60.0)
                if answer.kind == "value":
                    self._models[str(answer.value["hash"])] = recipe.spec

    def _retire(self, planned: PlannedCase) -> None:
        """End a worker that has served `SEEDS` seeds; `_worker` then starts another."""
        served = self._served.setdefault(planned.subject.name, set())
        if planned.seed not in served and len(served) >= SEEDS:
            served.clear()
            if planned.subject.name in self.workers:
                self.workers[planned.subject.name].close()
        served.add(planned.seed)

    def _worker(self, planned: PlannedCase) -> Worker:
        subject = planned.subject
        if (subject.name, planned.seed) in self._failures:
            raise self._failures[subject.name, planned.seed]
        worker = self.workers.get(subject.name)
        if worker is None or not worker.alive:
            try:
                worker = Worker.start(subject, threads=self.options.threads, mutant=self.options.mutant)
            except WorkerError as error:
                self._failures[subject.name, planned.seed] = error
                raise
            self.workers[subject.name] = worker
        return worker
