"""Summarise recorded speeds in a short table: how many times faster rlkernels is than each peer, by op."""

from __future__ import annotations

from collections.abc import Iterable

from gates.report.speed import kernels
from gates.report.speed.inline import CONFORMANCE
from gates.report.speed.markdown import table
from gates.report.speed.recorded import gather
from gates.results.speed_file import SpeedResults


def speed_summary(runs: Iterable[SpeedResults]) -> str:
    """Return a markdown table with a row for each peer, a column for each op, and the control as its last row.

    The newest measurement of each row counts. A range covers all shapes and conventions; the outermost ends of the 95%
    intervals are in brackets. Links are relative to docs/.
    """
    summary = kernels.summary(gather(runs), step=False)
    if not summary:
        return "No kernel is recorded."
    return "\n".join(table(summary)).replace(f"]({CONFORMANCE})", f"](../results/{CONFORMANCE})")
