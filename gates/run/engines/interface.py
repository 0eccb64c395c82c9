"""The interface of an engine: submit cases, receive verdicts, close."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gates.run.judge import Judged
from gates.run.plan import Options, PlannedCase


class Executor(Protocol):
    """Judges each case once, in any order."""

    def submit(self, cases: Sequence[PlannedCase]) -> None:
        """Take cases to judge; more may follow while others are judged."""
        ...

    def judged(self) -> Iterator[Judged]:
        """Yield each verdict as it is reached, until all submitted cases are judged."""
        ...

    def close(self) -> None:
        """End everything at once, even in mid-call."""
        ...


Engine = Callable[[Options], Executor]
"""Makes the executor of one run."""
