"""Judge cases one after another, with one worker process for each subject."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.model import Outcome, Recipe, Status, UnsupportedError, Verdict, Wire
from gates.run.choices import chosen
from gates.run.inputs import with_model
from gates.run.judge import TIMEOUT, Judged, judge, lacking
from gates.run.oracle_cache import Answers, OracleCache
from gates.run.plan import Options, PlannedCase, seed_of
from gates.run.time_limits import TimeLimit, Timeouts, remedy
from gates.worker.process import Hello, Worker, WorkerError

MODEL_HASH = "model_hash"  # an op without a gate that identifies the judged weights
SEEDS = 10  # seeds that one worker serves: bounds the memory that a subject leaks, without a new process for each seed


class SubjectWorkers:
    """Keeps a worker for each subject and judges cases with them. `close` may be called from any thread."""

    def __init__(
        self,
        options: Options,
        cached: OracleCache | None = None,
        answers: Answers | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.options = options
        self.workers: dict[str, Worker] = {}
        self._cached = cached or OracleCache()
        self._answers = None if options.mutant else answers or Answers()  # a mutant must run in every case
        self._timeouts = timeouts or Timeouts(options.most_timeouts)
        self._served: dict[str, set[int | None]] = {}  # the seeds that each worker has served
        self._failures: dict[tuple[str, int | None], WorkerError] = {}  # the next seed starts the subject again
        self._models: dict[str, Mapping[str, Wire]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._hashed: set[str] = set()
        self._closed = False

    def judge(self, planned: PlannedCase) -> Judged:
        """Return the verdict of one case, even if the subject does not start or exits."""
        try:
            self._retire(planned)
            worker = self._worker(planned)
        except WorkerError as error:
            return Judged(self._not_started(planned, error))
        if not_asked := self._not_asked(planned, worker.hello):
            return Judged(not_asked, worker.hello)
        before = {id(worker): (worker, worker.patched_calls)}  # and of workers that replace crashed ones

        def caller(
            op: str, inputs: Mapping[str, Wire | Recipe], layout: Mapping[str, str], kill_after_s: float | None
        ) -> Outcome:
            serving = self._worker(planned)
            before.setdefault(id(serving), (serving, 0))
            try:
                if kill_after_s is not None:
                    return serving.call(op, inputs, limit_s=kill_after_s, layout=layout)
                return self._timed(serving, planned, op, inputs, layout)
            except BaseException:  # Ctrl-C, a timeout of pytest: the next call must not get this one's late answer
                serving.close()
                raise

        verdict = judge(planned, caller, worker.hello, self.options, self._cached, self._answers)
        self._note_models(planned)
        calls = sum(used.patched_calls - count for used, count in before.values())
        return Judged(verdict, worker.hello, calls, dict(self._models))

    def _timed(
        self,
        worker: Worker,
        planned: PlannedCase,
        op: str,
        inputs: Mapping[str, Wire | Recipe],
        layout: Mapping[str, str],
    ) -> Outcome:
        """Call an op within the time limit of its case, and count a timeout."""
        name, limit = planned.subject.name, TimeLimit.of(planned.case, self.options)
        more = limit.first_more if op not in worker.answered and self._timeouts.may_compile(name, op) else 0.0
        says = remedy(self.options.time_limit_option)
        outcome = worker.call(op, inputs, limit_s=limit.seconds, layout=layout, first_more_s=more, remedy=says)
        if outcome.kind == "timeout":
            self._timeouts.note(name, op, first=more > 0.0)
        return outcome

    def _not_asked(self, planned: PlannedCase, hello: Hello) -> Verdict | None:
        """Return the verdict of a case of an op that has had the most timeouts, unless the subject lacks the case."""
        op = self._timeouts.exhausted(planned.subject.name, (op.name for op in planned.gate.ops))
        if not op:
            return None
        try:
            asked = chosen(planned, hello)
        except UnsupportedError:
            return None
        if lacking(asked, hello):
            return None
        return Verdict(
            *planned.names,
            seed_of(planned, self.options),
            "not asked",
            TIMEOUT,
            f"after {self._timeouts.most} timeouts of {op}",
            op=asked.gate.graded(asked.case),
            level=asked.case.level or asked.gate.level,
        )

    def close(self) -> None:
        """End the workers, even in mid-call; one that is being started ends as soon as it has."""
        self._closed = True
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
            if self._closed:
                worker.close()
        return worker
