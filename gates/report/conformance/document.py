"""results/CONFORMANCE.md: the matrix, what each library computes by the name of GRPO, the method, and how to object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gates.report.conformance import grpo, method
from gates.report.conformance.cells import Cell, Judged, matrix
from gates.report.conformance.common import appendix
from gates.report.conformance.rows import ROWS, placed
from gates.report.conformance.words import (
    ABSENT,
    CHOSEN,
    MARKS,
    TITLE,
    asked,
    counted,
    grade_words,
    rule,
    table_row,
    worse_than,
)
from gates.results.common_cases import Common
from gates.results.conformance_records import ConformanceResults, FindingRecord
from gates.results.library_facts import Facts
from gates.subjects.peers.scope import STATUSES, scope

FOLDER = "conformance"  # of the pages of libraries, from the page


def render(results: Iterable[ConformanceResults], facts: Facts, common: Common) -> str:
    """Return the page as markdown.

    Args:
        results: the recorded libraries.
        facts: their default settings, and which rows they name.
        common: rare input, over cases that libraries have in common.
    """
    libraries = sorted(results, key=lambda library: library.header.peer)
    cells = matrix(libraries, facts)
    lines = [
        *_head(libraries),
        *_matrix(libraries, cells),
        *grpo.table(libraries, cells, facts),
        *method.lines(libraries),
        *appendix(common),
        *_coverage(libraries),
    ]
    return "\n".join(lines) + "\n"


def _head(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    findings = [finding for library in libraries for finding in library.findings]
    yield f"# {TITLE}"
    yield ""
    yield (
        f"{len(libraries)} libraries, each judged through its own functions and trainers in its own environment, defaults first. "
        "Each has a page with what it does well, what was found, and a program for every finding: "
        + " · ".join(f"[{name}]({FOLDER}/{name}.md)" for name in _names(libraries))
        + "."
    )
    yield counted(findings)
    yield ""


def _names(libraries: Sequence[ConformanceResults]) -> list[str]:
    return [library.header.peer for library in libraries]


def _matrix(libraries: Sequence[ConformanceResults], cells: Mapping[tuple[str, str], Cell]) -> Iterator[str]:
    yield "## What each library computes"
    yield ""
    yield (
        "A cell: its grade · *as* which composition, where the library's default, or the name alone, is not what the name's "
        f"paper has · cases asked · what comes nearest to the paper · findings. {CHOSEN}: under a setting that is not the "
        "library's default, which its page lists. Grades: correct, *differs* (another known choice), *departs* (another formula, "
        f"which its documentation announces), **wrong** (a mistake or an unknown formula). Blanks: {ABSENT} absent: nothing in "
        "its code has the name · *not judged*, though it has it: its page says why · *refused*: it raises an error that says so. Rare input and "
        "lost digits cost no grade here; they stand in the [appendix](#rare-input-and-lost-digits)."
    )
    yield ""
    yield table_row(
        ["", *(f"[{lib.header.peer}]({FOLDER}/{lib.header.peer}.md) {lib.header.version}" for lib in libraries)]
    )
    yield rule(len(libraries) + 1)
    for row in ROWS:
        yield table_row([f"**{row.title}**", *(_cell(cells[row.title, name]) for name in _names(libraries))])
    yield ""


def _cell(cell: Cell) -> str:
    links = " ".join(_link(cell.peer, finding, number) for number, finding in enumerate(cell.findings, 1))
    if cell.kind == "absent":
        return ABSENT
    if cell.kind != "judged":
        return "<br>".join(part for part in (f"[*{cell.kind}*]({FOLDER}/{cell.peer}.md#not-judged)", links) if part)
    parts = [grade_words(cell, MARKS)]
    if cell.default is not None:
        parts += [_as(cell.default, cell), asked(cell.default) + _dagger(cell.default)]
    if cell.nearest is not None:
        parts.append(f"paper's: {MARKS[cell.nearest.grade]}{_dagger(cell.nearest)}, {asked(cell.nearest)}")
    if cell.also:
        parts.append("also " + ", ".join(f"*{one.choices}*{_worse(one, cell)}" for one in cell.also if one.choices))
    return "<br>".join(part for part in (*parts, links) if part)


def _as(one: Judged, cell: Cell) -> str:
    return f"as *{one.choices}*{_worse(one, cell)}" if one.choices else ""


def _worse(one: Judged, cell: Cell) -> str:
    return f" ({MARKS[one.grade]})" if worse_than(one, cell) else ""


def _dagger(one: Judged) -> str:
    return CHOSEN if one.chosen else ""


def _link(peer: str, finding: FindingRecord, number: int) -> str:
    return f"[{number}]({FOLDER}/{peer}.md#{finding.id})"


def _coverage(libraries: Sequence[ConformanceResults]) -> Iterator[str]:
    yield "## Coverage"
    yield ""
    yield (
        "Public names of the installed packages: configuration fields, values of their options, functions. Judged of what is in "
        "scope is what an op of ours asks (judged, judged elsewhere) or a finding's program (departs); what each status means and "
        "every name stand in [SCOPE.md](conformance/SCOPE.md), and `gates peers coverage NAME` gives the reasons."
    )
    yield ""
    yield table_row(["library", "names", "of what is in scope", *STATUSES])
    yield rule(len(STATUSES) + 3)
    for library in libraries:
        counts = Counter(row.status for row in library.coverage)
        share = str(scope(library.coverage))
        numbers = [str(counts[status]) for status in STATUSES]
        yield table_row([library.header.peer, str(len(library.coverage)), share, *numbers])
    unplaced = [
        (library.header.peer, finding.id)
        for library in libraries
        for finding in library.findings
        if not placed(library)[finding.id]
    ]
    if unplaced:
        yield ""
        yield (
            "Findings about no row: "
            + ", ".join(f"[{name}]({FOLDER}/{peer}.md#{name})" for peer, name in unplaced)
            + "."
        )
