"""What `gates check` does with failures when all is judged: makes them small, records them, says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import typer

from gates.counterexample.minimising import Minimiser
from gates.model import Subject, Verdict
from gates.report import smallest
from gates.report.jsonl import Writer
from gates.report.records import CounterexampleRecord
from gates.report.visible import visible
from gates.runner import Job, Options
from gates.session import tool_version


@dataclass(slots=True)
class Found:
    """The counterexamples of one run; their files lie in a folder beside the results, with its name."""

    jobs: list[Job]
    options: Options
    subjects: Mapping[str, Subject]
    writer: Writer
    silent: bool
    wanted: bool
    failures: list[Verdict] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def watching(self, show: Callable[[Verdict], None]) -> Callable[[Verdict], None]:
        """Return a receiver of verdicts that keeps the failures and passes everything on."""

        def on_verdict(verdict: Verdict) -> None:
            if verdict.status == "fail":
                self.failures.append(verdict)
            show(verdict)

        return on_verdict

    def record(self) -> None:
        """Make the failures small and write a line for each that was looked at."""
        if not self.wanted or not self.failures:
            return
        folder = self.writer.path.with_suffix(".counterexamples")
        minimiser = Minimiser(self.jobs, self.options, self.subjects, folder, tool_version())
        for verdict in self.failures:
            minimiser.note(verdict)
        if minimiser.failures and not self.silent:
            typer.echo("making the first failures small; --no-minimise leaves it out", err=True)
        made = []
        for verdict, found, path, reason in minimiser.run():
            record = CounterexampleRecord(
                gate=verdict.gate,
                subject=verdict.subject,
                case=verdict.case,
                seed=verdict.seed,
                file=f"{path.parent.name}/{path.name}" if path else None,
                words=found.words if found else reason,
                elements_before=found.elements_before if found else None,
                elements_after=found.elements_after if found else None,
                finished=found.finished if found else None,
            )
            self.writer.write(record)
            made.append(record)
        pythons = {job.subject.name: job.subject.python for job in self.jobs}
        self.lines += smallest.lines(made, self.writer.path.parent, pythons)

    def show(self) -> None:
        """Print each, with the command that judges it again."""
        if self.silent:
            return
        for line in self.lines:
            typer.echo(visible(line))
