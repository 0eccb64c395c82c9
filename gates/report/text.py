"""What a run looks like on a terminal and in a CI log."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.text import Text

from gates.model import STATUSES, Status, Verdict
from gates.report.labels import shown
from gates.report.progress import Bar, console
from gates.report.records import verdict_record
from gates.session import Tally

STYLES = {
    "pass": "green",
    "fail": "bold red",
    "departs": "red",
    "error": "bold magenta",
    "skipped": "yellow",
    "unsupported": "dim",
    "waived": "yellow",
}


class Screen:
    """Shows verdicts as they come: a progress bar on a terminal, a line per gate and subject elsewhere."""

    def __init__(self, planned: int, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = console()
        self.bar = Bar("judging", planned, shown_on=self.console)
        self.live = self.bar.live and not as_json
        self.planned = planned
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
        if self.as_json:
            sys.stdout.write(json.dumps(verdict_record(verdict).model_dump(mode="json"), ensure_ascii=False) + "\n")
            return
        if verdict.cause == "start":
            if verdict.subject not in self.dead:  # one line says what every further cell would repeat
                self._line(verdict)
            self.dead.add(verdict.subject)
        elif verdict.status in {"fail", "error"}:
            self._line(verdict)
        if self.live:
            self.bar.advance(verdict.where)
        elif verdict.status == "pass":  # skips and the unsupported are listed with their cause in the end
            self._line(verdict)

    def _line(self, verdict: Verdict) -> None:
        line = Text(f"{shown(verdict).upper():11} ", style=STYLES[shown(verdict)])
        line.append(verdict.where, style="default")
        if verdict.reason and verdict.status != "pass":
            line.append(f": {verdict.reason}", style="default")
        self.console.print(line)

    def interrupted(self, path: Path) -> None:
        """Say what is left of a run that was stopped."""
        sys.stderr.write(f"interrupted: incomplete: {len(self.verdicts)} of {self.planned}; they are in {path}\n")

    def summary(self, path: Path, tally: Tally) -> None:
        """Print the table of gates and subjects, where the results are, and the full count as the last line."""
        if self.as_json:
            sys.stderr.write(f"{tally.line()}\n")
            return
        self.console.print()
        for line in table(self.verdicts):
            self.console.print(line)
        for hole_line in self._holes():
            self.console.print(hole_line)
        for hole in tally.holes:
            self.console.print(f"required, but {hole.status}: {hole.where}: {hole.reason}")
        self.console.print(f"\nresults: {path}")
        self.console.print(tally.line())

    def _holes(self) -> list[str]:
        """List skips and unsupported ops with their cause, once each: silence is never success."""
        found: dict[tuple[Status, str, str], int] = Counter()
        for verdict in self.verdicts:
            if verdict.status in {"skipped", "unsupported"}:
                found[verdict.status, verdict.subject, verdict.reason] += 1
        return [f"{status}: {subject}: {reason} ({count})" for (status, subject, reason), count in found.items()]


def table(verdicts: list[Verdict]) -> list[Text]:
    """Return a line per gate with the counts of each subject."""
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        cells[verdict.gate, verdict.subject][shown(verdict)] += 1
    gates = sorted({gate for gate, _ in cells})
    subjects = list(dict.fromkeys(subject for _, subject in sorted(cells)))
    width = max((len(gate) for gate in gates), default=4)
    widths = {subject: max(len(subject), 14) for subject in subjects}
    lines = [Text(f"{'gate':{width}}  " + "  ".join(f"{s:{widths[s]}}" for s in subjects), style="bold")]
    for gate in gates:
        line = Text(f"{gate:{width}}")
        for subject in subjects:
            worst, words = cell(cells.get((gate, subject), Counter()))
            line.append("  ")
            line.append(f"{words:{widths[subject]}}", style=STYLES[worst] if worst else "dim")
        lines.append(line)
    return lines


def cell(counts: Counter[str]) -> tuple[str | None, str]:
    """Return the worst status of a gate for a subject, and its words: `pass 12`, `FAIL 3 of 12`."""
    total = sum(counts.values())
    if not total:
        return None, "·"
    for status in ("error", "fail", "departs"):
        if counts[status]:
            return status, f"{status.upper()} {counts[status]} of {total}"
    if counts["pass"]:
        return "pass", f"pass {counts['pass']}" if counts["pass"] == total else f"pass {counts['pass']} of {total}"
    worst = next(status for status in STATUSES if counts[status])
    return worst, worst
