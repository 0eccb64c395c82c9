"""Show a run on a terminal and in a CI log."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from gates.config.format_names import CheckFormat
from gates.model import FAILURES, Verdict
from gates.report.plain import holes, table, verdict_line
from gates.report.progress import Bar, console
from gates.results.escape import one_line, visible
from gates.results.jsonl import as_line, read
from gates.results.records import verdict_record
from gates.run.session import Tally

LIVE = (
    "text",
    "github",
)  # formats that show each verdict as it comes, as jsonl does; the others are documents


class Screen:
    """Shows verdicts as they come: with a progress bar on a terminal, one per line elsewhere."""

    def __init__(self, planned: int, form: CheckFormat = "text") -> None:
        self.form = form
        self.console = console()
        self.bar = Bar("judging", planned, shown_on=self.console)
        self.live = self.bar.live and form in LIVE
        self.verdicts: list[Verdict] = []
        self.dead: set[str] = set()

    def __enter__(self) -> Self:
        if self.live:
            self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.bar.__exit__(kind, value, trace)

    def verdict(self, verdict: Verdict) -> None:
        """Show one verdict."""
        self.verdicts.append(verdict)
        if self.form == "jsonl":
            sys.stdout.write(visible(as_line(verdict_record(verdict))))
        if self.form not in LIVE:
            return
        if verdict.cause == "start":
            if verdict.subject not in self.dead:  # every further case would repeat the line
                self.console.print(verdict_line(verdict))
            self.dead.add(verdict.subject)
        elif verdict.status in {*FAILURES, "error", "waived"}:
            self.console.print(verdict_line(verdict))
        if self.live:
            self.bar.advance(one_line(verdict.where))
        elif verdict.status == "correct":  # skipped and unsupported cases are listed with their cause at the end
            self.console.print(verdict_line(verdict))

    def all_judged(self) -> None:
        """Remove the bar."""
        if self.live:
            self.bar.__exit__(None, None, None)

    def interrupted(self, path: Path) -> None:
        """Print the state of an interrupted run, read from its file: Ctrl-C may come between writing and counting."""
        sys.stderr.write(f"interrupted: {read(path).state}; they are in {path}\n")

    def summary(self, tally: Tally) -> None:
        """Print the table of gates and subjects, what was not judged, and what else fails the run."""
        if self.form not in LIVE:
            return
        self.console.print()
        for line in (*table(self.verdicts), *holes(self.verdicts), *map(one_line, tally.problems)):
            self.console.print(line)
        if any(v.status in FAILURES and v.cause != "start" for v in self.verdicts):
            self.console.print(
                "`gates explain GATE` shows what a gate checks, in which units, and where its limits come from"
            )

    def end(self, path: Path, tally: Tally) -> None:
        """Print the path of the results and, last, the counts; on stderr if the output is a document."""
        if self.form in LIVE:
            self.console.print(f"\nresults: {path}\n{tally.line()}")
        else:
            sys.stderr.write(f"results: {path}\n{tally.line()}\n")
