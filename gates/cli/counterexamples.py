"""Shrink, record and print the failures of `gates check` after the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import typer

from gates.model import Grade, Subject, Verdict, failing
from gates.report import smallest
from gates.report.progress import Elapsed, console
from gates.results.escape import one_line, visible
from gates.results.jsonl import Writer
from gates.results.records import CounterexampleRecord
from gates.run.plan import Options, PlannedCase
from gates.run.session import tool_version
from gates.shrink.collect import MOST, Kept, Shrinker
from gates.shrink.failing_case import Progress


@dataclass(slots=True)
class Found:
    """The counterexamples of one run; their files are in a folder beside the results file, with its name."""

    cases: list[PlannedCase]
    options: Options
    subjects: Mapping[str, Subject]
    writer: Writer
    silent: bool
    budget_s: float  # seconds for each failure; 0: nothing is shrunk or kept
    fail_on: Grade = "wrong"  # what does not fail the run is not shrunk
    failures: list[Verdict] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: list[CounterexampleRecord] = field(default_factory=list)

    def watching(self, show: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
        """Return a verdict callback that keeps the failures and calls `show`."""

        def on_verdict(verdict: Verdict) -> None:
            if verdict.status in failing(self.fail_on):
                self.failures.append(verdict)
            show(verdict)

        return on_verdict

    def record(self, all_judged: Callable[[], None]) -> None:
        """Shrink the failures and write a record for each; call `all_judged` before showing anything."""
        if not self.budget_s or not self.failures:
            return
        folder = self.writer.path.with_suffix(".counterexamples")
        shrinker = Shrinker(self.cases, self.options, self.subjects, folder, tool_version(), self.budget_s)
        for verdict in self.failures:
            shrinker.note(verdict)
        if not shrinker.failures:
            return
        all_judged()
        if not self.silent:
            number = min(MOST, len(shrinker.failures))
            what = "the failure" if number == 1 else f"{number} failures"
            words = f"shrinking {what}, at most {self.budget_s:g} s each; Ctrl-C keeps the smallest so far"
            typer.echo(words, err=True)
        with Elapsed(console(stderr=True), wanted=not self.silent) as elapsed:
            kept = []
            for one in shrinker.run(_Shown(elapsed)):
                self.records.append(self._record(one))
                self.writer.write(self.records[-1])
                kept.append(one)
        self.lines += [line for one in kept if one.tried for line in self._lines(one)]
        if left := sum(not one.tried for one in kept):
            self.notes.append(f"{left} more failing {'input' if left == 1 else 'inputs'}, not shrunk: {folder}")

    def _lines(self, one: Kept) -> list[str]:
        found, where = one.found, one.verdict.where
        if one.reason or found is None:
            first = f"not shrunk: {where}: {one.reason}"
        else:
            first = f"smallest input: {where} ({smallest.size(self._record(one))}): {found.words}"
        again = smallest.command(self._record(one), self.writer.path.parent)
        return [first, f"  {again}"] if again else [first]

    def _record(self, one: Kept) -> CounterexampleRecord:
        small = None if one.reason else one.found
        return CounterexampleRecord(
            gate=one.verdict.gate,
            subject=one.verdict.subject,
            case=one.verdict.case,
            seed=one.verdict.seed,
            file=f"{one.path.parent.name}/{one.path.name}" if one.path else None,
            words=small.words if small else one.reason,
            elements_before=small.elements_before if small else None,
            elements_after=small.elements_after if small else None,
            unit=small.unit if small else "numbers",
            finished=small.finished if small else None,
            python=next(
                (planned.subject.python for planned in self.cases if planned.subject.name == one.verdict.subject), None
            ),
            model=self.options.model if one.found and one.found.models else None,
        )

    def show(self) -> None:
        """Print each failure with the command that judges it again."""
        if self.silent:
            return
        for line in self.lines:
            typer.echo(visible(line))


class _Shown(Progress):
    """Shows on a terminal which failure is being shrunk, for how long, and its size."""

    def __init__(self, elapsed: Elapsed) -> None:
        super().__init__()
        self._elapsed, self._where = elapsed, ""

    def start(self, where: str) -> None:
        self._where = one_line(where)
        self._elapsed.start(self._where)

    def smaller(self, words: str) -> None:
        self._elapsed.now(f"{self._where}: {words}")
