"""Summarise recorded speeds in a short table: how many times faster than each peer, op by op."""

from __future__ import annotations

from collections.abc import Iterable

from gates.report.speed import kernels
from gates.report.speed.inline import CONFORMANCE
from gates.report.speed.markdown import table
from gates.report.speed.recorded import gather
from gates.results.speed_file import SpeedResults


def speed_summary(runs: Iterable[SpeedResults]) -> str:
    """Return a markdown table: a row for each peer, a column for each op, the control below.

    The newest measurement of each row counts. A range is of the estimates over shapes and conventions; in brackets are the
    outermost ends of their 95% intervals. Links are those of a document in docs/.
    """
    found = kernels.summary(gather(runs), step=False)
    if not found:
        return "No kernel is recorded."
    return "\n".join(table(found)).replace(f"]({CONFORMANCE})", f"](../results/{CONFORMANCE})")
