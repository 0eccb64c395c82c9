"""How far a calibration has come: a bar on a terminal, elsewhere a line after each seed."""

from __future__ import annotations

import time

from gates.model import Verdict
from gates.report.progress import Bar
from gates.results.escape import one_line
from gates.run.calibration_summary import is_false_positive


class Progress:
    """Names every false positive at once, unless it is quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._verdicts = self._refused = 0

    def begin(self, left: int) -> Bar:
        """Start the clock."""
        self._left, self._start = left, time.monotonic()
        self._bar = Bar("calibrating", left)
        return self._bar

    def verdict(self, seed: int, verdict: Verdict) -> None:
        """Count a verdict."""
        self._verdicts += 1
        if is_false_positive(verdict):
            self._refused += 1
            if not self._quiet:
                self._bar.say(one_line(f"FALSE POSITIVE at seed {seed}: {verdict.where}: {verdict.reason}"))
        self._bar.advance(self._words(seed))

    def seed(self, seed: int) -> None:
        """Print a line where no bar is drawn."""
        if not self._bar.live and not self._quiet:
            self._bar.say(f"{self._words(seed)}: {self._verdicts} of {self._left} verdicts")

    def _words(self, seed: int) -> str:
        seconds = (time.monotonic() - self._start) * (self._left - self._verdicts) / max(self._verdicts, 1)
        left = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return f"seed {seed}, {self._refused} false positives, {left} left"
