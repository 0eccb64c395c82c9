"""Render recorded libraries as one HTML page: the matrix of grades, and the findings of each library."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gates.report import conformance, web
from gates.report.conformance import CHOSEN, KINDS, TITLE, USES
from gates.report.statuses import BY_GRADE
from gates.results.conformance_records import BlankRecord, ConformanceResults, FindingRecord, GradeRecord
from gates.results.escape import visible
from gates.subjects.peers.scope import scope

TICKED = re.compile("`([^`]+)`")
MEANINGS = {  # of the grades, as the page's legend has them
    "correct": "the definition, within what its dtype can reach",
    "imprecise": "less precise than that",
    "fragile": "fails on rare input that runs produce",
    "raises": "an exception on ordinary input",
    "differs": "another library's choice",
    "departs": "another formula, which its documentation announces",
    "wrong": "a mistake or an unknown formula",
    "not judged": "the library has it; the reason stands below the name of the library",
    "refused": "it raises an error that says so",
}


@dataclass(frozen=True, slots=True)
class LibraryPart:
    """What the page shows of one library."""

    library: ConformanceResults
    totals: Mapping[str, int]  # ops by grade
    findings: Sequence[tuple[str, str, Sequence[FindingRecord]]]  # title and meaning of each kind
    coverage: Mapping[str, int]
    share: str  # of the names in scope that are judged


def render_conformance_page(results: Iterable[ConformanceResults]) -> str:
    """Return the page; text of libraries is escaped, and no script may run."""
    libraries = sorted(results, key=lambda library: library.header.peer)
    templates = web.environment()
    templates.filters |= {"ticked": ticked, "choices": conformance.choices, "options": _options, "breakable": breakable}
    matrix = conformance.rows(libraries, _alike)
    present = {record.grade if isinstance(record, GradeRecord) else record.kind for record in _records(matrix)}
    return web.rendered(
        templates,
        "conformance.html.j2",
        title=TITLE,
        bias=conformance.BIAS,
        parts=[_part(library) for library in libraries],
        matrix=matrix,
        legend={name: words for name, words in MEANINGS.items() if name in present},
        counted=conformance.counted([finding for library in libraries for finding in library.findings]),
        shared=conformance.shared(libraries),
        definitions=", ".join(sorted({library.header.definitions for library in libraries})),
        days=sorted(library.header.started[:10] for library in libraries),
        machines=", ".join(sorted({library.header.machine.cpu for library in libraries})),
        known={finding.id for library in libraries for finding in library.findings},
        apart=conformance.apart,
        not_default=conformance.not_default,
        without_grade=conformance.without_grade,
        uses=USES,
        chosen=CHOSEN,
    )


def _records(matrix: Sequence[tuple[list[str], list[conformance.Cell]]]) -> Iterable[GradeRecord | BlankRecord]:
    return (record for _, cells in matrix for cell in cells for record in cell)


def _alike(record: GradeRecord | BlankRecord) -> str:
    """Return what a cell shows, without the numbers of cases."""
    if isinstance(record, BlankRecord):
        return record.kind
    return "|".join((record.grade, str(bool(record.settings)), conformance.choices(record.op), *record.findings))


def _options(op: str) -> str:
    """Return the options of an op whose name stands before it: `[k2]` of `token_kl[k2]`."""
    return "".join(op.partition("[")[1:]) or op


def breakable(name: str) -> Markup:
    """Render a name that may break after an underscore and before its options."""
    return Markup("<wbr>[").join(Markup("_<wbr>").join(part.split("_")) for part in visible(name).split("["))


def _part(library: ConformanceResults) -> LibraryPart:
    grades = Counter(grade.grade for grade in library.grades)
    kinds = []
    for kind, (title, words) in KINDS.items():
        if findings := [finding for finding in library.findings if finding.kind == kind]:
            kinds.append((title, words, findings))
    covered = Counter(row.status for row in library.coverage)
    coverage = {status or "without a row": count for status, count in covered.most_common()}
    totals = {status: grades[status] for status in BY_GRADE if grades[status]}
    return LibraryPart(library, totals, kinds, coverage, str(scope(library.coverage)))


def ticked(text: str) -> Markup:
    """Render text whose code stands between backticks."""
    parts = TICKED.split(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )
