"""Limit what a worker's processes use during a call: memory, number of processes, and output."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

import psutil

TICK_S = 0.25  # between looks, which take milliseconds; a process fills about a GiB in that time
PROCESSES = 256  # most processes of a subject; a fork bomb exceeds it within a look or two
LOG_LIMIT = 64 << 20  # bytes of output, after which the log is emptied, since only its end is shown
MIB = 1 << 20
MARK = "GATES_WORKER"  # the environment variable that a worker's processes inherit
ROUNDS = 20  # searches for processes to end, since one may start another meanwhile
PAUSE_S = 0.005  # between rounds, since a killed process needs a moment to end


@dataclass(slots=True)
class Watch:
    """Watches one worker from the judge's process, since macOS does not enforce RLIMIT_AS and address space is not memory.

    Processes that leave the worker's process group are remembered, so that they end with the worker. On Linux the worker
    adopts orphaned descendants, so all are found. Elsewhere, and after the worker has ended, orphans are found by the token
    in their environment.
    """

    pid: int
    log: int
    memory_limit: int | None
    token: str = ""
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)

    def look(self) -> str:
        """Return the limit that is exceeded, or "". Most calls return at once: a look is due every `TICK_S`."""
        if time.monotonic() - self.last < TICK_S:
            return ""
        self.last = time.monotonic()
        if os.fstat(self.log).st_size > LOG_LIMIT:
            os.ftruncate(self.log, 0)
        alive = self.find()
        if len(alive) > PROCESSES:
            return f"it has {len(alive)} processes, must be at most {PROCESSES}"
        if self.memory_limit is None:
            return ""
        used = sum(map(_resident, alive))
        if used > self.memory_limit and len(alive) > 1:  # shared pages count for each process
            used = sum(map(_own, alive))
        if used <= self.memory_limit:
            return ""
        return f"it uses {used / MIB:.0f} MiB, must be at most {self.memory_limit / MIB:.0f} (--memory-limit)"

    def find(self) -> list[psutil.Process]:
        """Return the running worker and its running descendants, and remember the latter."""
        processes: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error, OSError):  # OSError: too few open files to look into /proc
            worker = psutil.Process(self.pid)
            processes = [worker, *worker.children(recursive=True)]
        self.seen |= {process.pid: process for process in processes[1:]}
        return processes

    def end_descendants(self) -> None:
        """Stop the worker and kill its descendants while it is their parent, so that none escapes between two looks."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGSTOP)
        for _ in range(ROUNDS):
            running = [process for process in self.find() if process.pid != self.pid and _runs(process)]
            if not running:
                return
            for process in running:
                with contextlib.suppress(psutil.Error, OSError):
                    process.kill()
            time.sleep(PAUSE_S)

    def end(self) -> None:
        """Kill the processes that outlive the worker; psutil detects a reused process id."""
        for process in self.seen.values():
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        for _ in range(ROUNDS):
            orphans = [process for process in psutil.process_iter() if self._has_token(process)] if self.token else []
            if not orphans:
                return
            for process in orphans:
                with contextlib.suppress(psutil.Error, OSError):
                    process.kill()
            psutil.wait_procs(orphans, timeout=1.0)

    def _has_token(self, process: psutil.Process) -> bool:
        try:
            return bool(process.environ().get(MARK) == self.token) and _runs(process)
        except (psutil.Error, OSError):  # a process of another user, or one that ended meanwhile
            return False


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except (psutil.Error, OSError):  # it ended meanwhile, or there are too few open files to look
        return 0


def _own(process: psutil.Process) -> int:
    """Return a process's proportional memory, or its resident memory on macOS, which lacks the former."""
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", memory.rss))
    except (psutil.Error, OSError):
        return _resident(process)
