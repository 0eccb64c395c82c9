"""Judge on this machine with several threads, each with its own workers."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from gates.run.engines.subject_workers import SubjectWorkers
from gates.run.judge import Judged
from gates.run.oracle_cache import Answers, OracleCache
from gates.run.plan import Options, PlannedCase
from gates.run.time_limits import Timeouts

ENDING_S = 2.0  # a thread whose worker has ended ends as soon; longer where it computes limits


class Pool:
    """The default executor: threads of this process."""

    def __init__(self, options: Options, cached: OracleCache | None = None) -> None:
        self._options = options
        self._pending = _Pending()
        self._cached = cached or OracleCache()
        self._answers = Answers()
        self._timeouts = Timeouts(options.most_timeouts)
        self._done: queue.SimpleQueue[Judged | BaseException] = queue.SimpleQueue()
        self._threads: list[tuple[SubjectWorkers, threading.Thread]] = []
        self._submitted = 0
        self._yielded = 0

    def submit(self, cases: Sequence[PlannedCase]) -> None:
        """Take cases to judge, and start threads up to the number of jobs."""
        self._submitted += len(cases)
        self._pending.add(cases)
        while len(self._threads) < min(max(1, self._options.jobs), self._submitted):
            workers = SubjectWorkers(self._options, self._cached, self._answers, self._timeouts)
            thread = threading.Thread(target=self._serve, args=(workers,), daemon=True)
            self._threads.append((workers, thread))
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
        for workers, thread in self._threads:
            thread.join(0.2)
            workers.close()
        for _, thread in self._threads:
            thread.join(ENDING_S)

    def _serve(self, workers: SubjectWorkers) -> None:
        while (planned := self._pending.take(workers.workers)) is not None:
            try:
                self._done.put(replace(workers.judge(planned), seed=planned.seed))
            except BaseException as error:  # noqa: BLE001  `judged` raises it in the main thread
                if not self._pending.closed:
                    self._done.put(error)


class _Pending:
    """The cases that no thread has taken yet, handed out so that few subjects are started twice."""

    def __init__(self) -> None:
        self._cases: dict[str, deque[tuple[int, PlannedCase]]] = {}  # of each subject, in the order of `add`
        self._added = 0
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self.closed = False

    def add(self, cases: Sequence[PlannedCase]) -> None:
        """Append cases and wake waiting threads."""
        with self._changed:
            for planned in cases:
                self._cases.setdefault(planned.subject.name, deque()).append((self._added, planned))
                self._added += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Stop handing out cases, and wake waiting threads."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def take(self, running: Container[str]) -> PlannedCase | None:
        """Return a case of a running subject, else of one that no thread has started, else any; None after `close`."""
        with self._changed:
            while not self._cases and not self.closed:
                self._changed.wait()
            if self.closed:
                return None
            subject = min(self._cases, key=lambda name: (self._cost(name, running), self._cases[name][0][0]))
            _, chosen = self._cases[subject].popleft()
            if not self._cases[subject]:
                del self._cases[subject]
            self._begun.add(subject)
            return chosen

    def _cost(self, subject: str, running: Container[str]) -> int:
        if subject in running:
            return 0
        return 1 if subject not in self._begun else 2
