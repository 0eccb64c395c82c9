"""Render recorded speeds as markdown with pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gates.report.speed.document import TITLE, document
from gates.report.speed.inline import Figure, Items, Paragraph, Part, Section, Table, Text, in_markdown
from gates.report.speed.pictures import drawn
from gates.results.speed_file import SpeedResults

MOST_LINES = 200
CUT = "The HTML page and the files list the others."
INTRODUCTION = (
    "Rendered by `gates report` from the recorded runs in [bench/](bench/), which hold every number. "
    "[benchmarks.md](../docs/benchmarks.md) explains how to run the benchmarks."
)


def render_speed(runs: Iterable[SpeedResults]) -> str:
    """Render one document for all runs, with lists shortened until it has at most MOST_LINES lines where possible."""
    _, sections = document(runs)
    lines = list(_lines(sections))
    while len(lines) > MOST_LINES and _shortened(sections):
        lines = list(_lines(sections))
    return "\n".join(lines).rstrip() + "\n"


def render_pictures(runs: Iterable[SpeedResults]) -> dict[str, str]:
    """Return the pictures of that document by file name."""
    _, sections = document(runs)
    figures = [part for section in sections for part in section.parts if isinstance(part, Figure)]
    return {figure.file: drawn(figure) for figure in figures}


def _lines(sections: Iterable[Section]) -> Iterator[str]:
    yield from (f"# {TITLE}", "", INTRODUCTION, "")
    for section in sections:
        yield from _section(section)


def _shortened(sections: Sequence[Section]) -> bool:
    """Remove a line from the list with the most removable lines; return whether there was one."""
    lists = [
        (len(part.items) - part.least, section, index)
        for section in sections
        for index, part in enumerate(section.parts)
        if isinstance(part, Items) and 0 < part.least < len(part.items)
    ]
    if not lists:
        return False
    _, section, index = max(lists, key=lambda entry: entry[0])
    part = section.parts[index]
    assert isinstance(part, Items)
    kept = [item for item in part.items if item != CUT]
    section.parts[index] = Items([*kept[:-1], CUT], part.least)
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


def table(content: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _row(content.head)
    yield _row(["---"] * len(content.head))
    for cells in content.rows:
        yield _row(cells)


def _row(cells: Sequence[Text]) -> str:
    return f"| {' | '.join(cell if cell == '---' else in_markdown(cell) for cell in cells)} |"
