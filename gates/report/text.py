"""Show a run on a terminal and in a CI log: progress while it lasts, one screen of grades at its end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gates.config.format_names import CheckFormat
from gates.model import COSTLY, DEFAULT, FAILURES, NOT_JUDGED, Grade, Verdict
from gates.report import screen
from gates.report.grades import UNKNOWN, Catalogue, Grades
from gates.report.plain import holes, table, verdict_line
from gates.report.progress import Bar, Lines, console
from gates.report.wrap import columns, rows
from gates.results.escape import one_line, visible
from gates.results.jsonl import as_line, read
from gates.results.records import CounterexampleRecord, DiagnosisRecord, verdict_record
from gates.run.differing import differing
from gates.run.session import Tally
from gates.run.settle import settled_lines
from gates.run.waivers import Waivers

LIVE = ("text", "github")  # formats whose end is the screen; jsonl shows each verdict, the others are documents


class Screen:
    """Shows a run: a bar on a terminal, a line now and then elsewhere; with `verbose` each verdict as it comes."""

    def __init__(
        self,
        planned: int,
        form: CheckFormat = "text",
        *,
        verbose: bool = False,
        fail_on: Grade = DEFAULT,
        mutants: Catalogue = UNKNOWN,
        waivers: Waivers | None = None,
    ) -> None:
        self.form = form
        self.verbose = verbose and form in LIVE
        self.fail_on = fail_on
        self.mutants = mutants
        self.waivers = waivers
        self.console = console()
        on = self.console if self.console.is_terminal and form in LIVE else console(stderr=True)
        self.bar = Bar("judging", planned, shown_on=on)
        self.lines = Lines(planned)
        self.verdicts: list[Verdict] = []
        self.counts: Counter[str] = Counter()
        self.dead: set[str] = set()
        self.start = time.monotonic()

    def __enter__(self) -> Self:
        if self.bar.live:
            self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar.live:
            self.bar.__exit__(kind, value, trace)

    def verdict(self, verdict: Verdict) -> None:
        """Count one verdict, and show it where each is shown."""
        self.verdicts.append(verdict)
        self.counts[verdict.status] += 1
        if self.form == "jsonl":
            sys.stdout.write(visible(as_line(verdict_record(verdict))))
        if self.verbose:
            self._line(verdict)
        if self.bar.live:
            self.bar.advance(one_line(f"{self._so_far()} · {verdict.where}"))
        else:
            self.lines.advance(self._so_far())

    def _line(self, verdict: Verdict) -> None:
        if verdict.status in NOT_JUDGED:
            return  # listed with their causes at the end
        if verdict.cause != "start" or verdict.subject not in self.dead:  # every further case would repeat the line
            self.console.print(verdict_line(verdict))
        if verdict.cause == "start":
            self.dead.add(verdict.subject)

    def _so_far(self) -> str:
        counts = [f"{self.counts[status]} {status}" for status in (*COSTLY, "timeout", "error")]
        return ", ".join(words for words in counts if not words.startswith("0 ")) or "none wrong"

    def all_judged(self) -> None:
        """Remove the bar."""
        if self.bar.live:
            self.bar.__exit__(None, None, None)

    def interrupted(self, path: Path) -> None:
        """Print the state of an interrupted run, read from its file: Ctrl-C may come between writing and counting."""
        sys.stderr.write(f"interrupted: {read(path).state}; they are in {path}\n")

    def end(
        self,
        path: Path,
        tally: Tally,
        smallest: Sequence[CounterexampleRecord] = (),
        notes: Sequence[str] = (),
        diagnoses: Sequence[DiagnosisRecord] = (),
    ) -> None:
        """Print the screen, with `verbose` the tables before it; of a document, on stderr, only where the results are."""
        ended = screen.Ended(
            Grades.of(self.verdicts, self.mutants, diagnoses, self.waivers),
            path,
            {name: hello.versions for name, hello in tally.hellos.items()},
            screen.by_op(smallest, {(v.gate, v.subject, v.case): v.op for v in self.verdicts if v.status in FAILURES}),
            tally.problems,
            time.monotonic() - self.start,
            self.fail_on,
            tally.exit_code(),
            notes=notes,
            diagnoses={(record.subject, record.op): record for record in diagnoses},
            unasked=tally.unasked,
        )
        if self.form == "jsonl":
            for record in settled_lines(self.verdicts, differing(diagnoses), self.waivers):
                sys.stdout.write(visible(as_line(record)))
        if self.form not in LIVE:
            for line in screen.end(ended, columns()):
                sys.stderr.write(f"{line.plain}\n")
            return
        if self.verbose:
            self.console.print()
            for words in (*table(self.verdicts), *holes(self.verdicts), *map(one_line, tally.problems)):
                self.console.print(words)
            self.console.print()
        for line in screen.lines(ended, columns(), rows()):
            self.console.print(line)
