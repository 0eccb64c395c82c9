"""Limit what a worker's processes use during a call: memory, number of processes, and output."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field

import psutil

TICK_S = 0.25  # between looks: a process fills about a GiB in that time, a look takes a few milliseconds
PROCESSES = 256  # that one subject may have at once; a fork bomb passes it within a look or two
LOG_LIMIT = 64 << 20  # bytes of output, after which the log is emptied: only its end is ever shown
MIB = 1 << 20
MARK = "GATES_WORKER"  # the variable that a worker's processes inherit
ROUNDS = 20  # of a search for processes to end: one may start another while it is searched for
PAUSE_S = 0.005  # between two such rounds: a killed process needs a moment to end


@dataclass(slots=True)
class Watch:
    """Watches one worker from the judge's process: macOS does not enforce RLIMIT_AS, and address space is not memory.

    Processes that leave the worker's process group are remembered, so that they end with the worker. Where Linux makes the
    worker the parent of every descendant whose own parent has ended, all are found. Elsewhere, and after the worker itself
    has ended, one without a parent is found by the token that its environment has from the worker.
    """

    pid: int
    log: int
    memory_limit: int | None
    token: str = ""
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)

    def look(self) -> str:
        """Return which limit is exceeded, or nothing. Most calls return at once: a look is due every `TICK_S`."""
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
        if used > self.memory_limit and len(alive) > 1:  # pages that processes share are in the number of each
            used = sum(map(_own, alive))
        if used <= self.memory_limit:
            return ""
        return f"it uses {used / MIB:.0f} MiB, must be at most {self.memory_limit / MIB:.0f} (--memory-limit)"

    def find(self) -> list[psutil.Process]:
        """Return the worker and its descendants that still run, and remember them."""
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error, OSError):  # OSError: too few open files to look into /proc
            worker = psutil.Process(self.pid)
            found = [worker, *worker.children(recursive=True)]
        self.seen |= {process.pid: process for process in found[1:]}
        return found

    def end_descendants(self) -> None:
        """Kill all descendants while the worker, which stands still, is their parent: none can slip away between two looks."""
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
        """Kill the processes that outlive the worker; psutil spares another process that has taken over a number."""
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
        except (psutil.Error, OSError):  # another user's, or it ended meanwhile
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
    """Return a process's memory with its share of each page that others have too; macOS does not say it."""
    try:
        found = process.memory_full_info()
        return int(getattr(found, "pss", found.rss))
    except (psutil.Error, OSError):
        return _resident(process)
