"""What the runner knows of an executor: cells go in, verdicts come out, and in the end it is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gates.run.runner import Judged, Options, PlannedCase


class Executor(Protocol):
    """Judges cells somewhere, in any order, each once."""

    def submit(self, jobs: Sequence[PlannedCase]) -> None:
        """Take cells to judge; more may follow while others are judged."""
        ...

    def judged(self) -> Iterator[Judged]:
        """Yield what became of each cell as it is reached, until all that were submitted are judged."""
        ...

    def close(self) -> None:
        """End everything at once, in the middle of a call if need be."""
        ...


Engine = Callable[[Options], Executor]
"""Makes the executor of one run."""
