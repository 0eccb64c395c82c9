"""Shrink, record and print the failures of `gates check` after the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import typer

from gates.model import DEFAULT, Grade, Subject, Verdict, failing
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
class Failures:
    """The failures of one run and their counterexamples, which go to a folder named after the results file."""

    cases: list[PlannedCase]
    options: Options
    subjects: Mapping[str, Subject]
    writer: Writer
    silent: bool
    budget_s: float  # seconds for each failure; 0: nothing is shrunk or kept
    fail_on: Grade = DEFAULT  # milder failures are not shrunk
    verdicts: list[Verdict] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: list[CounterexampleRecord] = field(default_factory=list)

    def watching(self, show: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
        """Return a verdict callback that keeps the failures and calls `show`."""

        def on_verdict(verdict: Verdict) -> None:
            if verdict.status in failing(self.fail_on):
                self.verdicts.append(verdict)
            show(verdict)

        return on_verdict

    def record(self, all_judged: Callable[[], None]) -> None:
        """Shrink the failures and write a record for each; call `all_judged` before showing anything."""
        if not self.budget_s or not self.verdicts:
            return
        folder = self.writer.path.with_suffix(".counterexamples")
        shrinker = Shrinker(self.cases, self.options, self.subjects, folder, tool_version(), self.budget_s)
        for verdict in self.verdicts:
            shrinker.note(verdict)
        if not shrinker.failures:
            return
        all_judged()
        if not self.silent:
            number = min(MOST, len(shrinker.failures))
            counted = "the failure" if number == 1 else f"{number} failures"
            message = f"shrinking {counted}, at most {self.budget_s:g} s each; Ctrl-C keeps the smallest so far"
            typer.echo(message, err=True)
        with Elapsed(console(stderr=True), wanted=not self.silent) as elapsed:
            kept = []
            for counterexample in shrinker.run(_Display(elapsed)):
                self.records.append(self._record(counterexample))
                self.writer.write(self.records[-1])
                kept.append(counterexample)
        self.lines += [line for item in kept if item.tried for line in self._lines(item)]
        if left := sum(not item.tried for item in kept):
            self.notes.append(f"{left} more failing {'input' if left == 1 else 'inputs'}, not shrunk: {folder}")

    def _lines(self, kept: Kept) -> list[str]:
        shrunk, where = kept.counterexample, kept.verdict.where
        if kept.reason or shrunk is None:
            first = f"not shrunk: {where}: {kept.reason}"
        else:
            first = f"smallest input: {where} ({smallest.size(self._record(kept))}): {shrunk.words}"
        command = smallest.command(self._record(kept), self.writer.path.parent)
        return [first, f"  {command}"] if command else [first]

    def _record(self, kept: Kept) -> CounterexampleRecord:
        small = None if kept.reason else kept.counterexample
        return CounterexampleRecord(
            gate=kept.verdict.gate,
            subject=kept.verdict.subject,
            case=kept.verdict.case,
            seed=kept.verdict.seed,
            file=f"{kept.path.parent.name}/{kept.path.name}" if kept.path else None,
            words=small.words if small else kept.reason,
            elements_before=small.elements_before if small else None,
            elements_after=small.elements_after if small else None,
            unit=small.unit if small else "numbers",
            finished=small.finished if small else None,
            python=next(
                (planned.subject.python for planned in self.cases if planned.subject.name == kept.verdict.subject), None
            ),
            model=self.options.model if kept.counterexample and kept.counterexample.models else None,
            subject_file=self._subject_file(kept.verdict.subject),
            time_limit=self.options.time_limit,
        )

    def _subject_file(self, name: str) -> str | None:
        """Return the file of a user's subject, from the folder of the results."""
        entry = next((planned.subject.entry for planned in self.cases if planned.subject.name == name), None)
        if name in self.subjects or entry is None:
            return None
        return Path(os.path.relpath(entry, self.writer.path.parent.resolve())).as_posix()

    def show(self) -> None:
        """Print each failure with the command that judges it again."""
        if self.silent:
            return
        for line in self.lines:
            typer.echo(visible(line))


class _Display(Progress):
    """Progress on a terminal: the failure that is being shrunk, the time so far, and the size."""

    def __init__(self, elapsed: Elapsed) -> None:
        super().__init__()
        self._elapsed, self._where = elapsed, ""

    def start(self, where: str) -> None:
        self._where = one_line(where)
        self._elapsed.start(self._where)

    def smaller(self, size: str) -> None:
        self._elapsed.now(f"{self._where}: {size}")
