"""What a run looks like on a terminal and in a CI log."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from gates.config.format_names import CheckFormat
from gates.model import Verdict
from gates.report.plain import holes, table, verdict_line
from gates.report.progress import Bar, console
from gates.results.escape import one_line, visible
from gates.results.jsonl import as_line, read
from gates.results.records import verdict_record
from gates.run.session import Tally

LIVE = (
    "text",
    "github",
)  # forms that show each verdict as it comes; jsonl too, one line each; the others are documents


class Screen:
    """Shows verdicts as they come: a progress bar on a terminal, a line for each elsewhere."""

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
            if verdict.subject not in self.dead:  # one line says what every further cell would repeat
                self.console.print(verdict_line(verdict))
            self.dead.add(verdict.subject)
        elif verdict.status in {"fail", "error", "waived"}:
            self.console.print(verdict_line(verdict))
        if self.live:
            self.bar.advance(one_line(verdict.where))
        elif verdict.status == "pass":  # skips and the unsupported are listed with their cause in the end
            self.console.print(verdict_line(verdict))

    def all_judged(self) -> None:
        """Take the bar away: what comes next is shown elsewhere."""
        if self.live:
            self.bar.__exit__(None, None, None)

    def interrupted(self, path: Path) -> None:
        """Say what is left of a run that was stopped: as its file says, for Ctrl-C may come between writing and counting."""
        sys.stderr.write(f"interrupted: {read(path).state}; they are in {path}\n")

    def summary(self, tally: Tally) -> None:
        """Print the table of gates and subjects, what was not judged, and what else fails the run."""
        if self.form not in LIVE:
            return
        self.console.print()
        for line in (*table(self.verdicts), *holes(self.verdicts), *map(one_line, tally.problems)):
            self.console.print(line)
        if any(v.status == "fail" and v.cause != "start" for v in self.verdicts):
            self.console.print(
                "`gates explain GATE` says what a gate asks, in which units, and where its limits come from"
            )

    def end(self, path: Path, tally: Tally) -> None:
        """Print where the results are, and the full count as the last line; not on an output that is a document."""
        if self.form in LIVE:
            self.console.print(f"\nresults: {path}\n{tally.line()}")
        else:
            sys.stderr.write(f"results: {path}\n{tally.line()}\n")
