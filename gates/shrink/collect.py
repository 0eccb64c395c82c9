"""Collect the failures of a run; at its end shrink the first few and keep the inputs of the others as drawn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gates.model import FAILURES, Subject, Verdict
from gates.run.plan import Options, PlannedCase
from gates.shrink.failing_case import BUDGET_S, CAUSES, CannotShrinkError, Progress, as_drawn, shrink_case
from gates.shrink.file import Counterexample, write

MOST = 3  # failures of a run that are shrunk, one for each gate and subject
NOT_SHRUNK = frozenset(("start", "departs"))  # without inputs; a documented deviation


@dataclass(frozen=True, slots=True)
class Kept:
    """A failure of a run and its counterexample; `reason` says why it was not shrunk."""

    verdict: Verdict
    counterexample: Counterexample | None
    path: Path | None
    reason: str = ""
    tried: bool = True  # False: beyond the first MOST failures


@dataclass(slots=True)
class Shrinker:
    """Shrinks the first failure of each gate and subject, in the order of the plan."""

    cases: list[PlannedCase]
    options: Options
    subjects: Mapping[str, Subject]
    folder: Path
    tool: str = ""
    budget_s: float = BUDGET_S
    failures: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    order: dict[tuple[str, str, str], int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = {
            (planned.gate.id, planned.subject.name, planned.case.name): n for n, planned in enumerate(self.cases)
        }

    def note(self, verdict: Verdict) -> None:
        """Keep a verdict if it is the first failure of its gate and subject."""
        if verdict.status in FAILURES and verdict.cause not in NOT_SHRUNK:
            known = self.failures.setdefault((verdict.gate, verdict.subject), verdict)
            if self._index(verdict) < self._index(known):
                self.failures[verdict.gate, verdict.subject] = verdict

    def run(self, progress: Progress | None = None) -> Iterable[Kept]:
        """Yield each failure with its file; Ctrl-C keeps the inputs of the remaining failures as drawn."""
        progress = progress or Progress()
        tried = 0
        for verdict in self._in_turn():
            if verdict.cause not in CAUSES:
                yield self._as_drawn(verdict, f"a failure by {verdict.cause} takes the whole time limit at each try")
            elif tried == MOST:
                skipped = self._as_drawn(verdict, f"only the first {MOST} failures of a run are shrunk")
                yield replace(skipped, tried=False)
            elif progress.stopped:
                yield self._as_drawn(verdict, "the search was stopped")
            else:
                tried += 1
                yield self._shrunk(verdict, progress)

    def _in_turn(self) -> list[Verdict]:
        """Return the failures in the order of the plan, but the first of each subject and op before any second one."""
        before: Counter[tuple[str, str]] = Counter()
        turns: dict[str, int] = {}
        ordered = sorted(self.failures.values(), key=self._index)
        for verdict in ordered:
            turns[verdict.where] = before[verdict.subject, verdict.op]
            before[verdict.subject, verdict.op] += 1
        return sorted(ordered, key=lambda verdict: turns[verdict.where])

    def _shrunk(self, verdict: Verdict, progress: Progress) -> Kept:
        planned = self.cases[self._index(verdict)]
        progress.start(verdict.where)
        try:
            counterexample = shrink_case(
                planned, self.options, self.subjects, budget_s=self.budget_s, tool=self.tool, progress=progress
            )
        except CannotShrinkError as error:
            return self._as_drawn(verdict, str(error))
        except Exception as error:  # noqa: BLE001  a failing search must not fail the run
            return self._as_drawn(verdict, f"the search raised {type(error).__name__}: {error}")
        return self._kept(verdict, counterexample, "")

    def _as_drawn(self, verdict: Verdict, reason: str) -> Kept:
        counterexample = as_drawn(self.cases[self._index(verdict)], verdict, self.options, self.tool)
        return self._kept(verdict, counterexample, reason)

    def _kept(self, verdict: Verdict, counterexample: Counterexample, reason: str) -> Kept:
        path = self.folder / f"{_plain(verdict.gate)}-{_plain(verdict.subject)}.safetensors"
        try:
            write(path, counterexample)
        except ValueError as error:  # the format does not support this type of input
            return Kept(verdict, None, None, f"{reason}; {error}" if reason else str(error))
        return Kept(verdict, counterexample, path, reason)

    def _index(self, verdict: Verdict) -> int:
        return self.order[verdict.gate, verdict.subject, verdict.case]


def _plain(name: str) -> str:
    return re.sub(r"[^\w.@-]", "_", name)
