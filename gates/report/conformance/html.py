"""Render recorded libraries as one HTML page: the matrix with its filters, and the findings of each library."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gates.report import web
from gates.report.conformance import words
from gates.report.conformance.cells import Cell, matrix
from gates.report.conformance.rows import ROWS
from gates.report.statuses import BY_GRADE
from gates.results.conformance_records import ConformanceResults, FindingRecord
from gates.results.escape import visible
from gates.results.library_facts import Facts
from gates.subjects.peers.scope import scope

TICKED = re.compile("`([^`]+)`")
MEANINGS = {  # of the grades, as the page's legend has them
    "correct": "the definition of the composition that is named, within what its dtype can reach",
    "raises": "an exception on ordinary input",
    "differs": "another library's choice",
    "departs": "another formula, which its documentation announces",
    "wrong": "a mistake or an unknown formula",
    "not judged": "the library has it; the reason stands below the name of the library",
    "refused": "it raises an error that says so",
}
PLATFORMS = {  # what runs there, by the package that a library computes with
    "mac": ("Mac", "MLX, on Apple's GPU", ("mlx",)),
    "cuda": ("CUDA", "PyTorch, on NVIDIA's GPU", ("torch",)),
    "cpu": ("CPU", "both; where these were judged", ("mlx", "torch")),
}
GROUPS = (("algorithms", "Algorithms"), ("parts", "What all rest on"))


@dataclass(frozen=True, slots=True)
class LibraryPart:
    """What the page shows of one library."""

    library: ConformanceResults
    totals: Mapping[str, int]  # rows by grade
    findings: Sequence[tuple[str, str, Sequence[FindingRecord]]]  # title and meaning of each kind
    coverage: Mapping[str, int]
    share: str  # of the names in scope that are judged
    platforms: str  # as classes of its column
    blanks: Sequence[Cell]


def render_page(results: Iterable[ConformanceResults], facts: Facts) -> str:
    """Return the page; text of libraries is escaped, and no script may run: the filters are style."""
    libraries = sorted(results, key=lambda library: library.header.peer)
    templates = web.environment()
    templates.filters |= {"ticked": ticked, "slug": slug, "breakable": breakable}
    cells = matrix(libraries, facts)
    present = {cell.grade or cell.kind for cell in cells.values()}
    return web.rendered(
        templates,
        "conformance.html.j2",
        more_style=(web.FOLDER / "conformance.css").read_text(encoding="utf-8") + filters(),
        title=words.TITLE,
        bias=words.BIAS,
        parts=[_part(library, cells) for library in libraries],
        rows=ROWS,
        groups=GROUPS,
        platforms=PLATFORMS,
        cells=cells,
        worse_than=words.worse_than,
        asked=words.asked,
        legend={name: meaning for name, meaning in MEANINGS.items() if name in present},
        counted=words.counted([finding for library in libraries for finding in library.findings]),
        shared=words.shared(libraries),
        definitions=", ".join(sorted({library.header.definitions for library in libraries})),
        days=sorted(library.header.started[:10] for library in libraries),
        machines=", ".join(sorted({library.header.machine.cpu for library in libraries})),
        not_default=words.not_default,
        uses=words.USES,
        chosen=words.CHOSEN,
    )


def filters() -> str:
    """Return the rules that hide columns of other platforms and rows of other algorithms."""
    hidden = "{ display: none; }"
    rules = [f"body:has(#platform-{name}:checked) .column:not(.{name}) {hidden}" for name in PLATFORMS]
    shown = (*(name for name, _ in GROUPS), *(slug(row.title) for row in ROWS))
    rules += [f"body:has(#row option[value={one}]:checked) #matrix tbody tr:not(.{one}) {hidden}" for one in shown]
    return "\n".join(rules) + "\n"


def slug(title: str) -> str:
    """Return a name that may be a class: `dr-grpo`."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower())) + ("-pp" if title.endswith("++") else "")


def platforms_of(library: ConformanceResults) -> list[str]:
    """Return where a library runs, by what it computes with."""
    return [name for name, (_, _, packages) in PLATFORMS.items() if library.header.versions.keys() & set(packages)]


def breakable(name: str) -> Markup:
    """Render a name that may break after an underscore and before its options."""
    return Markup("<wbr>[").join(Markup("_<wbr>").join(part.split("_")) for part in visible(name).split("["))


def _part(library: ConformanceResults, cells: Mapping[tuple[str, str], Cell]) -> LibraryPart:
    mine = [cells[row.title, library.header.peer] for row in ROWS]
    grades = Counter(cell.grade for cell in mine)
    kinds = []
    for kind, (title, meaning) in words.KINDS.items():
        if findings := [finding for finding in library.findings if finding.kind == kind]:
            kinds.append((title, meaning, findings))
    covered = Counter(row.status for row in library.coverage)
    coverage = {status or "without a row": count for status, count in covered.most_common()}
    totals = {status: grades[status] for status in BY_GRADE if grades[status]}
    blanks = [cell for cell in mine if cell.kind in {"not judged", "refused"}]
    classes = " ".join(platforms_of(library))
    return LibraryPart(library, totals, kinds, coverage, str(scope(library.coverage)), classes, blanks)


def ticked(text: str) -> Markup:
    """Render text whose code stands between backticks."""
    parts = TICKED.split(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )
