"""Print recorded speeds as one screen of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gates.report.speed import kernels, remarks, trainers
from gates.report.speed.counts import counts
from gates.report.speed.inline import in_plain
from gates.report.speed.numbers import interval
from gates.report.speed.recorded import Recorded, gather
from gates.report.wrap import columns, sentence, wrapped
from gates.results.speed_file import SpeedResults
from gates.results.speed_records import ComparisonRecord

INDENT = "  "
MOST = 40  # lines of ops, trainers and comparisons


def render_screen(runs: Iterable[SpeedResults]) -> str:
    """Render the summary of the runs as text."""
    recorded = gather(runs)
    return "\n".join(_lines(recorded)) + "\n"


def _lines(recorded: Recorded) -> Iterator[str]:
    width = columns()
    for run in recorded.runs[-1:]:
        h = run.header
        pieces = [
            h.kind,
            h.started[:10],
            f"commit {(h.commit or 'none')[:8]}",
            h.machine.cpu,
            f"{h.machine.cores} cores",
        ]
        pieces += [f"{h.threads} threads", *([] if run.state == "complete" else [run.state])]
        older = [f"and {len(recorded.runs) - 1} older"] if len(recorded.runs) > 1 else []
        yield from wrapped([*pieces, *older], width, " · ")
    for run in recorded.runs:
        if reasons := remarks.doubts(run):
            yield from sentence(f"! {run.path.name}: {'; '.join(reasons)}: conclude nothing", width)
    if recorded.kernels or recorded.trainers:
        for text in counts(recorded):
            yield from sentence(in_plain(text), width)
    body = [*_kernels(recorded, width), *_trainers(recorded, width), *_compared(recorded.comparisons, width)]
    yield from body[:MOST]
    if len(body) > MOST:
        yield f"{len(body) - MOST} more lines; --out FILE.md has all of them"
    if recorded.kernels or recorded.trainers:
        yield from sentence(
            "A ratio is the peer's time divided by the time of rlkernels, with its 95% interval; the control compares rlkernels "
            "with itself in the same pairs. --out FILE.md or FILE.html adds every shape, the time saved in a step, and our bias.",
            width,
        )


def _kernels(recorded: Recorded, width: int) -> Iterator[str]:
    for title, rows in recorded.by_op.items():
        if any(kernel.row.peer for kernel in rows):
            yield from _indented(
                f"{title}:", f"{in_plain(kernels.against(rows))} · control {in_plain(kernels.control(rows))}", width
            )


def _trainers(recorded: Recorded, width: int) -> Iterator[str]:
    head, _, rest = in_plain(trainers.summary(recorded)).partition(": ")
    if rest:
        yield from _indented(f"{head}:", rest, width)


def _compared(comparisons: Iterable[ComparisonRecord], width: int) -> Iterator[str]:
    for row in comparisons:
        result = f"{row.verdict} {interval(row.ratio)}" if row.verdict and row.ratio else f"{row.outcome} {row.reason}"
        noise = f" · control {interval(row.control)}" if row.control else ""
        yield from _indented(f"{row.benchmark}, {row.right[:12]} over {row.left[:12]}:", f"{result}{noise}", width)


def _indented(head: str, text: str, width: int) -> Iterator[str]:
    first, *rest = wrapped([head, *text.split(" ")], width - 2 * len(INDENT), " ")
    yield INDENT + first
    yield from (2 * INDENT + line for line in rest)
