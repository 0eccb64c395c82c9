"""results/conformance/NAME.md: what one library does well, what was found in it, and how much of it was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gates.report.conformance.cells import Cell, Judged
from gates.report.conformance.rows import ROWS, placed
from gates.report.conformance.words import (
    CLAIMED,
    GOOD,
    KINDS,
    MARKS,
    USES,
    counted,
    not_default,
    rule,
    table_row,
    without_grade,
)
from gates.results.conformance_records import ConformanceResults, FindingRecord
from gates.results.escape import visible
from gates.subjects.peers.scope import STATUSES, scope

CUT = 400  # characters of output that a record keeps, the last ones
UPDATES = "Two updates of its own trainer agree with the definition, token by token"
CALLS = "Its functions agree with the definition"


def render(
    library: ConformanceResults, cells: Mapping[tuple[str, str], Cell], sharing: Mapping[str, Sequence[str]]
) -> str:
    """Return a library's page as markdown.

    Args:
        library: its record.
        cells: of the matrix.
        sharing: of each finding the other libraries that have the same departure.
    """
    mine = [cells[row.title, library.header.peer] for row in ROWS]
    lines = [
        *_head(library),
        *_well(mine),
        *_findings(library, sharing),
        *_chosen(library),
        *_not_judged(library, mine),
        *_coverage(library),
    ]
    return "\n".join(lines) + "\n"


def _head(library: ConformanceResults) -> Iterator[str]:
    header = library.header
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items() if name != header.peer)
    yield f"# {header.peer} {header.version}"
    yield ""
    yield (
        f"Judged {header.started[:10]} beside {versions}, on {header.machine.cpu} without a GPU, at Gates {str(header.commit)[:8]}. "
        f"How, and with which limits: [CONFORMANCE.md](../CONFORMANCE.md#method). {counted(library.findings)}"
    )
    yield ""


def _well(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what agrees with the definitions: by updates first, then by calls."""
    yield "## What it does well"
    yield ""
    for by, title in (("update", UPDATES), ("function", CALLS)):
        words = [text for cell in cells if (text := _right(cell, by))]
        if words:
            yield f"- {title}: {', '.join(words)}."
    if not any(_right(cell, by) for cell in cells for by in ("update", "function")):
        yield "No row is judged correct yet by updates or calls."
    yield ""


def _right(cell: Cell, by: str) -> str:
    """Return a cell as part of a sentence where its composition is right; empty elsewhere."""
    if cell.kind != "judged" or cell.grade != "correct":
        return ""
    if cell.row.title.startswith("other") and cell.default is not None and cell.default.by == by:
        right = (one for one in (cell.default, *cell.also) if one.grade == "correct" and one.choices)
        return ", ".join(f"{one.choices} ({one.asked} of {one.of} cases)" for one in right)
    one = next((one for one in (cell.default, cell.nearest) if one and one.by == by and one.grade == "correct"), None)
    return "" if one is None else f"{cell.row.title}{_of(one)}"


def _of(one: Judged) -> str:
    composition = f"as {one.choices}, " if one.choices else ""
    chosen = ", not the default" if one.chosen else ""
    return f" ({composition}{one.asked} of {one.of} cases{chosen})"


def _findings(library: ConformanceResults, sharing: Mapping[str, Sequence[str]]) -> Iterator[str]:
    places = placed(library)
    yield "## Findings"
    yield ""
    yield CLAIMED
    yield ""
    if not library.findings:
        yield "None."
        yield ""
    for kind, (title, words) in KINDS.items():
        chosen = by_use(finding for finding in library.findings if finding.kind == kind)
        if chosen:
            yield f"### {title}"
            yield ""
            yield words
            yield ""
        for finding in chosen:
            rows = ", ".join(row.title for row in places[finding.id])
            yield from entry(finding, sharing.get(finding.id, ()), rows)


def by_use(findings: Iterable[FindingRecord]) -> list[FindingRecord]:
    """Return findings in the order of how many runs have them: default runs first."""
    order = [*USES, ""]
    return sorted(findings, key=lambda finding: order.index(finding.use))


def entry(finding: FindingRecord, others: Sequence[str], rows: str = "") -> Iterator[str]:
    """Yield one finding: what and in which runs it matters, then its facts and its program."""
    yield f"#### {finding.id}"
    yield ""
    yield prose(finding)
    yield ""
    facts = [
        f"holds {USES[finding.use]}" if finding.use else "",
        f"`{finding.where}`",
        f"measured: {finding.number}",
        f"computes: {finding.computes}" if finding.computes else "",
        f"grade: {_graded(finding)}",
        f"rows: {rows}" if rows else "",
        f"the same in: {', '.join(others)}" if others else "",
        "" if finding.reproduced else "not reproduced in this record",
    ]
    yield from (f"- {fact}" for fact in facts if fact)
    yield ""
    yield "<details><summary>Program</summary>"
    yield ""
    yield f"`gates peers repro {finding.id}` runs it in the library's environment, without Gates."
    yield ""
    yield "```python"
    yield finding.repro.strip()
    yield "```"
    yield ""
    if finding.output:
        yield "It printed:"
        yield ""
        yield "```text"
        yield ("…" if len(finding.output) >= CUT else "") + visible(finding.output.strip())
        yield "```"
        yield ""
    yield "</details>"
    yield ""


def prose(finding: FindingRecord) -> str:
    """Return what a finding says in sentences, at most 45 words."""
    return f"{finding.says} {finding.consequence}"


def _graded(finding: FindingRecord) -> str:
    if not finding.ops and finding.grade == "correct":
        return "none: no judged op shows it"
    mark = MARKS.get(finding.grade, finding.grade)
    shown = ", ".join(f"`{op}`" for op in finding.ops) or "shown by its program alone"
    return f"{mark}, {shown}"


def _chosen(library: ConformanceResults) -> Iterator[str]:
    settings = not_default(library)
    if settings:
        yield "## Not the default"
        yield ""
        yield "Settings that the adapter chose for the library, each with its ops."
        yield ""
        yield from (f"- {setting}: {', '.join(f'`{op}`' for op in ops)}" for setting, ops in settings.items())
        yield ""


def _not_judged(library: ConformanceResults, cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Not judged"
    yield ""
    for cell in cells:
        if cell.kind in {"not judged", "refused"}:
            yield f"- {cell.row.title}: {cell.kind}: {cell.why or 'by findings alone'}"
    for (kind, why), ops in without_grade(library.blanks).items():
        yield f"- {', '.join(f'`{op}`' for op in ops)}: {kind}: {why}"
    absent = [cell.row.title for cell in cells if cell.kind == "absent"]
    if absent:
        yield f"- Absent, no class, function, argument or file has its name: {', '.join(absent)}."
    yield ""
    variants = [grade for grade in library.grades if grade.subject != library.header.peer]
    if variants:
        shown = (
            f"`{grade.subject}` {grade.op}: {'correct' if grade.grade in GOOD else grade.grade}" for grade in variants
        )
        yield f"Documented parameter sets, judged apart: {' · '.join(shown)}."
        yield ""


def _coverage(library: ConformanceResults) -> Iterator[str]:
    counts = Counter(row.status for row in library.coverage)
    yield "## Coverage"
    yield ""
    yield (
        f"{len(library.coverage)} public names, {scope(library.coverage)}; every name stands in [SCOPE.md](SCOPE.md), and "
        f"`gates peers coverage {library.header.peer}` gives the reasons."
    )
    yield ""
    yield table_row(["status", "names"])
    yield rule(2)
    yield from (table_row([status, str(counts[status])]) for status in STATUSES if counts[status])
