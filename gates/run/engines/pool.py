"""This machine's pool: as many benches side by side as there are jobs, each in a thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from gates.run.engines.workers import Bench
from gates.run.oracle_cache import OracleCache
from gates.run.runner import Judged, Options, PlannedCase


class Pool:
    """The executor that a run has unless it asks for another."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._pending = _Pending()
        self._answers = OracleCache()
        self._done: queue.SimpleQueue[Judged | BaseException] = queue.SimpleQueue()
        self._benches: list[tuple[Bench, threading.Thread]] = []
        self._submitted = 0
        self._yielded = 0

    def submit(self, jobs: Sequence[PlannedCase]) -> None:
        """Take cells to judge, and start as many benches as can be of use."""
        self._submitted += len(jobs)
        self._pending.add(jobs)
        while len(self._benches) < min(max(1, self._options.jobs), self._submitted):
            bench = Bench(self._options, self._answers)
            thread = threading.Thread(target=self._serve, args=(bench,), daemon=True)
            self._benches.append((bench, thread))
            thread.start()

    def judged(self) -> Iterator[Judged]:
        """Yield verdicts as they are reached."""
        while self._yielded < self._submitted:
            judged = self._done.get()
            if isinstance(judged, BaseException):
                raise judged
            self._yielded += 1
            yield judged

    def close(self) -> None:
        """End all workers."""
        self._pending.close()
        for bench, thread in self._benches:
            thread.join(0.2)
            bench.close()

    def _serve(self, bench: Bench) -> None:
        while (job := self._pending.take(bench.workers)) is not None:
            try:
                self._done.put(replace(bench.judge(job), seed=job.seed))
            except BaseException as error:  # noqa: BLE001  handed to the main thread, which raises it
                if not self._pending.closed:
                    self._done.put(error)


class _Pending:
    """The jobs not begun, handed out so that few subjects have to be started twice."""

    def __init__(self) -> None:
        self._jobs: dict[str, deque[tuple[int, PlannedCase]]] = {}  # of each subject, in the order in which they came
        self._came = 0
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self.closed = False

    def add(self, jobs: Sequence[PlannedCase]) -> None:
        """Have more jobs."""
        with self._changed:
            for job in jobs:
                self._jobs.setdefault(job.subject.name, deque()).append((self._came, job))
                self._came += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Hand out no more jobs, and let nobody wait for one."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def take(self, mine: Container[str]) -> PlannedCase | None:
        """Return a job of a subject that runs here, else of one that runs nowhere, else any; None after `close`."""
        with self._changed:
            while not self._jobs and not self.closed:
                self._changed.wait()
            if self.closed:
                return None
            subject = min(self._jobs, key=lambda name: (self._cost(name, mine), self._jobs[name][0][0]))
            _, chosen = self._jobs[subject].popleft()
            if not self._jobs[subject]:
                del self._jobs[subject]
            self._begun.add(subject)
            return chosen

    def _cost(self, subject: str, mine: Container[str]) -> int:
        if subject in mine:
            return 0
        return 1 if subject not in self._begun else 2
