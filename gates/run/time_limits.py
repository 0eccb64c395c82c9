"""How long the calls of a case may take, and when an op that exceeds its limit again and again is not asked any more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gates.model import Case
from gates.run.plan import Options

FIRST_CALL = 5.0  # times the limit: the first call of an op in a process may compile (torch.compile, jax.jit, numba)
FIRST_CALL_MORE_S = 120.0  # beyond the limit at most, for cases with minutes
REAL_MODEL_PATIENCE = 30.0  # factor on the time limits of a case with a real model
TIMEOUTS = 3  # of an op, after which a run does not ask its other cases


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The seconds of a call, and how many more the first call of its op in a process has."""

    seconds: float
    first_more: float = 0.0

    @classmethod
    def of(cls, case: Case, options: Options) -> TimeLimit:
        """Return the limit of a case's calls: that of `--time-limit`, else the case's own."""
        patience = REAL_MODEL_PATIENCE if options.model else 1.0
        seconds = case.limit_s * patience if options.time_limit is None else options.time_limit
        return cls(seconds, min((FIRST_CALL - 1.0) * seconds, FIRST_CALL_MORE_S))


def remedy(option: str) -> str:
    """Return what the message of a timeout says of the option that sets the limit, if there is one."""
    return f"; {option} sets another limit" if option else ""


@dataclass(slots=True)
class Timeouts:
    """The timeouts of one run by subject and op. Threads may share it."""

    most: int = 0  # after which the other cases of an op are not asked; 0: all are
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _slow: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, subject: str, op: str, *, first: bool) -> None:
        """Count a timeout; `first` if the call had the time to compile."""
        with self._lock:
            self._counts[subject, op] += 1
            if first:
                self._slow.add((subject, op))

    def may_compile(self, subject: str, op: str) -> bool:
        """Whether a first call is given more time: not again after one exceeded it, so that a hang ends soon."""
        with self._lock:
            return (subject, op) not in self._slow

    def exhausted(self, subject: str, ops: Iterable[str]) -> str:
        """Return the first of these ops that has had the most timeouts, or ""."""
        if not self.most:
            return ""
        with self._lock:
            return next((op for op in ops if self._counts[subject, op] >= self.most), "")
