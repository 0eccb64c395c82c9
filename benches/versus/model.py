"""What is timed: two statements on the same data, each with its proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number beside its limit; what `gates.results.records.EvidenceRecord` will hold."""

    quantity: str
    observed: float
    relation: str
    limit: float
    because: str

    @property
    def holds(self) -> bool:
        """NaN never satisfies a relation."""
        return {"<=": self.observed <= self.limit, "==": self.observed == self.limit}[self.relation]


Verify = Callable[[Any], list[Evidence]]


@dataclass(frozen=True, slots=True)
class Side:
    """A call as a statement over names, so that both sides are called the same way and readers see the call.

    `verify` gets what the statement returned. `note` says what is computed, where it is not plainly the row's op.
    """

    statement: str
    names: Mapping[str, Any]
    verify: Verify
    note: str = ""

    def run(self) -> Any:
        """Return what one call returns."""
        return eval(self.statement, dict(self.names))  # noqa: S307  our own statement, as timeit runs it


@dataclass(frozen=True, slots=True)
class Row:
    """One op at one shape against one baseline.

    `ours` builds our side; `baselines` builds the other side: alternatives, of which the first that computes the op is
    timed. Without a baseline `goal` is a time in microseconds. `needs` names functions of rlkernels. Rows with the same
    `together` that follow one another have the same `ours`, which is timed once, in the same rounds as all baselines.
    """

    op: str
    shape: str
    baseline: str
    ours: Callable[[], Side]
    baselines: tuple[Callable[[], Side], ...] = ()
    needs: tuple[str, ...] = ()
    goal: float | None = None
    reads: int = 0
    writes: int = 0
    flops: float = 0.0
    precision: str = "float32"
    roofline_goal: float | None = None
    quick: bool = False
    most_rounds: int = 1000
    fewest_rounds: int = 30
    budget_s: float = 10.0
    together: str = ""

    @property
    def name(self) -> str:
        """Return what `--only` selects by."""
        return " ".join(part for part in (self.op, self.shape, self.baseline) if part)
