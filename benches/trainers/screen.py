"""The output of `gates bench trainers`: a line of progress, and one screen of results."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from gates.results.speed_records import Interval, TrainerRecord

COLUMNS = (
    "target",
    "comparison",
    "tok/s",
    "grad s",
    "samples/s",
    "it/s",
    "peak GB",
    "RSS GB",
    "time/token ÷ reference",
)
EVERY_S = 10.0  # between two lines of progress without a terminal


class Progress:
    """Report the running process and the remaining time on standard error."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = time.monotonic()
        self.said = float("-inf")
        self.live = sys.stderr.isatty()

    def start(self, process: str) -> None:
        """A process starts."""
        now = time.monotonic()
        if not self.live and now - self.said < EVERY_S:
            return
        self.said = now
        left = ""
        if self.done:
            seconds = (now - self.began) / self.done * (self.total - self.done)
            left = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        line = f"{self.done + 1} of {self.total} processes{left}: {process}"
        print(f"\r\033[K{line}" if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        """A process ended or did not start."""
        self.done += 1

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def lines(records: Sequence[TrainerRecord]) -> list[str]:
    """Return a table for each workload and model, followed by untimed targets with their reasons."""
    output: list[str] = []
    for key in dict.fromkeys((r.workload, r.model) for r in records):
        rows = [r for r in records if (r.workload, r.model) == key]
        timed = [r for r in rows if r.outcome == "timed"]
        output.append(_title(rows, timed))
        if timed:
            output += _columns([COLUMNS, *(_cells(r) for r in timed)])
        output += [f"  {r.target}: {r.outcome}: {r.reason}" for r in rows if r.outcome != "timed"]
        output.append("")
    return output


def _title(rows: Sequence[TrainerRecord], timed: Sequence[TrainerRecord]) -> str:
    title = f"{rows[0].workload} · {rows[0].model}"
    own = next((r for r in timed if r.control is not None), None)
    if own is None or own.control is None:
        return title
    return f"{title} · {own.passes} passes of the reference · control {_ratio(own.control)}"


def _cells(row: TrainerRecord) -> tuple[str, ...]:
    return (
        row.target,
        row.comparison,
        _value(row.rollout_tokens_per_s, 1),
        _value(row.gradient_s, 3),
        _value(row.samples_per_s, 2),
        _value(row.iterations_per_s, 3),
        _gigabytes(row.peak_memory_bytes),
        _gigabytes(row.peak_rss_bytes),
        _ratio(row.ratio),
    )


def _value(interval: Interval | None, digits: int) -> str:
    return "-" if interval is None else f"{interval.value:.{digits}f}"


def _gigabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e9:.2f}"


def _ratio(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    spread = "" if interval.low <= 0 else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"{interval.value:.2f}{spread}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = {0, 1, len(widths) - 1}
    return [
        "  "
        + "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
