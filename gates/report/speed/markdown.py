"""Render recorded speeds as markdown, and the pictures that stand beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gates.report.speed.document import TITLE, document
from gates.report.speed.inline import Figure, Items, Paragraph, Part, Section, Table, Text, in_markdown
from gates.report.speed.pictures import drawn
from gates.results.speed_file import SpeedResults

MOST_LINES = 200
CUT = "More are in the page and in the files."
INTRODUCTION = (
    "Rendered by `gates report` from [bench/](bench/), where every number is. "
    "[benchmarks.md](../docs/benchmarks.md) says how to run it."
)


def render_speed(runs: Iterable[SpeedResults]) -> str:
    """Return one document over all runs."""
    _, sections = document(runs)
    lines = list(_lines(sections))
    while len(lines) > MOST_LINES and _shortened(sections):
        lines = list(_lines(sections))
    return "\n".join(lines).rstrip() + "\n"


def render_pictures(runs: Iterable[SpeedResults]) -> dict[str, str]:
    """Return the pictures of that document by the name that it gives them."""
    _, sections = document(runs)
    found = [part for section in sections for part in section.parts if isinstance(part, Figure)]
    return {figure.file: drawn(figure) for figure in found}


def _lines(sections: Iterable[Section]) -> Iterator[str]:
    yield from (f"# {TITLE}", "", INTRODUCTION, "")
    for section in sections:
        yield from _section(section)


def _shortened(sections: Sequence[Section]) -> bool:
    """Cut a line from the list that may lose the most; return whether there was one."""
    found = [
        (len(part.items) - part.least, section, place)
        for section in sections
        for place, part in enumerate(section.parts)
        if isinstance(part, Items) and 0 < part.least < len(part.items)
    ]
    if not found:
        return False
    _, section, place = max(found, key=lambda one: one[0])
    part = section.parts[place]
    assert isinstance(part, Items)
    kept = [item for item in part.items if item != CUT]
    section.parts[place] = Items([*kept[:-1], CUT], part.least)
    return True


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    for part in section.parts:
        yield from _part(part)
        yield ""


def _part(part: Part) -> Iterator[str]:
    match part:
        case Table():
            yield from table(part)
        case Items():
            yield from (f"- {in_markdown(item)}" for item in part.items)
        case Paragraph():
            yield in_markdown(part.text)
        case Figure():
            yield f"![{part.caption}]({part.file})"


def table(found: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _row(found.head)
    yield _row(["---"] * len(found.head))
    for cells in found.rows:
        yield _row(cells)


def _row(cells: Sequence[Text]) -> str:
    return f"| {' | '.join(cell if cell == '---' else in_markdown(cell) for cell in cells)} |"
