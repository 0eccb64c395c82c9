"""Show progress: a bar on a terminal; elsewhere a check writes a line now and then."""

from __future__ import annotations

import os
import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column


def console(*, stderr: bool = False) -> Console:
    """Return a console that colours only on a terminal without NO_COLOR, and prints text without interpreting it.

    Rich would otherwise read an emoji in `x.py:100: message`.
    """
    plain = True if "NO_COLOR" in os.environ else None
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True, no_color=plain)


EVERY_S = 10.0  # seconds between two lines of progress


class _Live:
    """Shows progress from entry to exit."""

    _progress: Progress

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Elapsed(_Live):
    """Shows the current step and its time."""

    def __init__(self, shown_on: Console, *, wanted: bool = True) -> None:
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
        live = wanted and shown_on.is_terminal
        self._progress = Progress(*columns, console=shown_on, transient=True, disable=not live)
        self._task: TaskID | None = None

    def start(self, words: str) -> None:
        """Start the next step, with its time at 0."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(words, total=None)

    def now(self, words: str) -> None:
        """Show the progress of the step."""
        if self._task is not None:
            self._progress.update(self._task, description=words)


class Bar(_Live):
    """Shows how many of a total are done."""

    def __init__(self, label: str, total: int, *, shown_on: Console | None = None) -> None:
        target = shown_on or console()
        columns = (
            TextColumn(label),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn(
                "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
            ),
        )
        self.live = target.is_terminal
        self._progress = Progress(
            *columns,
            console=target,
            transient=True,
            expand=True,
            disable=not self.live,
            redirect_stdout=not target.stderr,  # what is printed belongs on stdout, also while stderr shows a bar
        )
        self._task = self._progress.add_task("", total=total)

    def advance(self, words: str) -> None:
        """Count one more as done, and show its name."""
        self._progress.update(self._task, advance=1, description=words)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False)


class Lines:
    """Writes a line of progress to stderr at most every ten seconds, where no bar is shown."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._start = self._last = time.monotonic()

    def advance(self, words: str) -> None:
        """Count one more as done."""
        self._done += 1
        now = time.monotonic()
        if now - self._last >= EVERY_S:
            self._last = now
            sys.stderr.write(f"judged {self._done} of {self._total} cases, {words} ({now - self._start:.0f} s)\n")
            sys.stderr.flush()
