"""Summarise recorded speeds in a short table: each op, and how many times faster than each peer."""

from __future__ import annotations

from collections.abc import Iterable

from gates.report.speed import kernels
from gates.report.speed.inline import Table, code
from gates.report.speed.markdown import table
from gates.report.speed.recorded import gather
from gates.results.speed_file import SpeedResults

HEAD = ("op", "times faster than", "control")


def speed_summary(runs: Iterable[SpeedResults]) -> str:
    """Return a markdown table: for each op the range of ratios over the shapes against each peer, and the control.

    The newest measurement of each row counts. A range is of the estimates; in brackets are the outermost ends of their
    95% intervals.
    """
    rows = [
        [code(title), kernels.against(found), kernels.control(found)]
        for title, found in gather(runs).ops.items()
        if any(kernel.row.peer for kernel in found)
    ]
    return "\n".join(table(Table(HEAD, rows, "Times faster than each peer")))
