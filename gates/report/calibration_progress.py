"""Show the progress of a calibration: a bar on a terminal, elsewhere occasional lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from gates.model import Verdict
from gates.report.progress import Bar, Lines
from gates.results.escape import one_line
from gates.run.calibration_summary import is_false_positive


@contextmanager
def shown(left: int, *, quiet: bool) -> Generator[Callable[[int, Verdict], None]]:
    """Show progress over `left` verdicts, and report each false positive immediately unless quiet."""
    start, verdicts, false_positives = time.monotonic(), 0, 0
    lines = Lines(left)

    def show(seed: int, verdict: Verdict) -> None:
        nonlocal verdicts, false_positives
        verdicts += 1
        if is_false_positive(verdict):
            false_positives += 1
            if not quiet:
                bar.say(one_line(f"FALSE POSITIVE at seed {seed}: {verdict.where}: {verdict.reason}"))
        seconds = (time.monotonic() - start) * (left - verdicts) / verdicts
        remaining = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        (bar if bar.live or quiet else lines).advance(
            f"seed {seed}, {false_positives} false positives, {remaining} left"
        )

    with Bar("calibrating", left) as bar:
        yield show
