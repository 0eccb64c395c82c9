"""The list of what is in scope of each library, name by name: what the share of judged names is a share of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gates.results.conformance_records import ConformanceResults, CoverageRecord
from gates.subjects.peers.scope import ASKED, OUTSIDE, STATUSES, scope

TITLE = "Scope: the public names of each library"


def render(results: Iterable[ConformanceResults]) -> str:
    """Return the list as markdown."""
    libraries = sorted(results, key=lambda library: library.header.peer)
    return "\n".join([*_head(), *(line for library in libraries for line in _library(library))])


def _head() -> Iterator[str]:
    yield f"# {TITLE}"
    yield ""
    yield (
        "A name has one status, and for what no op or program asks the reason stands behind it in brackets. "
        "`gates peers coverage NAME` prints all reasons. The sources are modules and classes that we chose: what a user would "
        "call or set, and no list of all that a package holds. How the list changed, and why, is in [scope.toml](scope.toml)."
    )
    yield ""
    yield from (f"- {status}: {meaning}" for status, meaning in STATUSES.items())
    yield ""


def _library(library: ConformanceResults) -> Iterator[str]:
    yield f"## {library.header.peer} {library.header.version}: {scope(library.coverage)}"
    yield ""
    sources: dict[str, list[CoverageRecord]] = defaultdict(list)
    for row in library.coverage:
        sources[row.source].append(row)
    for source, rows in sources.items():
        pieces = [f"{status}: {names}" for status in STATUSES if (names := _named(rows, status))]
        if pieces:
            yield f"- {source}: {' · '.join(pieces)}"
    kinds: dict[str, list[str]] = defaultdict(list)
    for row in library.coverage:
        if row.status == OUTSIDE:
            kinds[row.reason].append(row.name)
    yield from (f"- {OUTSIDE}, {kind}: {_listed(names)}" for kind, names in sorted(kinds.items()))
    yield ""


def _named(rows: Iterable[CoverageRecord], status: str) -> str:
    """Return the names with a status in scope; each reason once, behind its names, where nothing asks them."""
    if status == OUTSIDE:
        return ""
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.status == status:
            names["" if status in ASKED else f" ({row.reason})"].append(row.name)
    return ", ".join(f"{_listed(group)}{reason}" for reason, group in names.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))
