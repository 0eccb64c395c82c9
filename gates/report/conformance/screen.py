"""What `gates peers check` and `gates report --format text` print of one library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gates.report.conformance.words import GOOD
from gates.report.statuses import BY_GRADE
from gates.report.wrap import columns, wrapped
from gates.results.conformance_records import ConformanceResults, GradeRecord
from gates.results.escape import one_line
from gates.subjects.peers.scope import scope

INDENT = "  "


def screen(results: ConformanceResults, problems: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one library: counts, ops that are not correct, and problems that no record explains."""
    header, width = results.header, columns()
    counts = Counter(grade.grade for grade in results.grades)
    rows = Counter(row.status for row in results.coverage)
    ran = [finding for finding in results.findings if finding.reproduced is not None]
    pieces = [
        f"{header.peer} {header.version}",
        f"{len(results.grades)} ops judged",
        *(f"{counts[status]} {status}" for status in BY_GRADE if counts[status]),
        f"{len(results.coverage)} public names, {rows['']} without a row, {scope(results.coverage)}",
        f"{sum(bool(f.reproduced) for f in ran)} of {len(ran)} findings reproduced",
        f"{header.seconds:.0f} s",
    ]
    yield from wrapped(pieces, width, " · ")
    for grade in results.grades:
        if grade.grade not in GOOD:
            why = ", ".join(grade.findings) or grade.computes or grade.reason
            yield from _indented(f"{grade.grade.upper():11}{_named(grade, header.peer)}", why, width)
    for problem in problems:
        yield from _indented("!", one_line(problem), width)


def _indented(head: str, text: str, width: int) -> Iterator[str]:
    first, *rest = wrapped([head, *text.split()], width - 2 * len(INDENT), " ")
    yield INDENT + first
    yield from (2 * INDENT + line for line in rest)


def _named(grade: GradeRecord, peer: str) -> str:
    return grade.op if grade.subject == peer else f"{grade.op} of {grade.subject}"
