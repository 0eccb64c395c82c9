"""Words with marks, tables and sections: what the renderers of the speed report draw, in markdown or HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from gates.results.escape import code as code_in_markdown
from gates.results.escape import in_table, one_line, visible

CONFORMANCE = "CONFORMANCE.md"
ATOMS = re.compile(r"\d[\d,]* × \d[^\s;]*|(?:\d[\d.,]*× )?[^\s;]*\d–[^\s;]*")
LONG = 40  # letters of a cell that is given more room


@dataclass(frozen=True, slots=True)
class Marked:
    """Words as code, in bold, or as a link."""

    text: str
    mark: str  # code, strong, grade
    link: str = ""


Text = str | Marked | Sequence["Text"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; a cell is text, the first cell of a row is its heading."""

    head: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    caption: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list; where a document has too many lines it may be cut to `least` items, unless that is 0."""

    items: Sequence[Text]
    least: int = 0


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: the file that the markdown names, and the panels that the page holds."""

    file: str
    caption: str
    panels: Sequence[str]


Part = Table | Items | Paragraph | Figure


@dataclass(slots=True)
class Section:
    """A heading and what stands under it; in the page its id is `name`."""

    name: str
    title: str
    parts: list[Part] = field(default_factory=list)


def code(text: str) -> Marked:
    """Return words that are code."""
    return Marked(text, "code")


def strong(text: str, link: str = "") -> Marked:
    """Return words in bold, a link to a file beside the report if one is given."""
    return Marked(text, "strong", link)


def grade(name: str) -> Marked:
    """Return a grade that stands in the place of a speed, linked to the report of it."""
    return Marked(name, "grade", CONFORMANCE)


def joined(texts: Iterable[Text], between: str = " · ") -> Text:
    """Return texts with words between them."""
    found: list[Text] = []
    for text in texts:
        found += [between, text] if found else [text]
    return found


def in_markdown(text: Text) -> str:
    """Return text for a cell, an item or a paragraph of markdown."""
    if isinstance(text, str):
        return _spaced(text)
    if not isinstance(text, Marked):
        return "".join(map(in_markdown, text))
    if text.mark == "code":
        return code_in_markdown(text.text, cell=True)
    words = f"**{in_table(text.text)}**"
    return f"[{words}]({text.link})" if text.link else words


def _spaced(text: str) -> str:
    """Escape words, but keep the spaces that join them to the words before."""
    words = text.lstrip(" ")
    return " " * (len(text) - len(words)) + in_table(words)


def in_html(text: Text) -> Markup:
    """Return text as HTML; links lead to files beside the report, which a page by itself has not, so they are words."""
    if isinstance(text, str):
        return _kept_together(visible(text))
    if not isinstance(text, Marked):
        return Markup("").join(map(in_html, text))
    if text.mark == "code":  # a long name may break behind an underscore
        return Markup("<code>{}</code>").format(Markup("_<wbr>").join(visible(text.text).split("_")))
    kind = Markup(' class="grade"') if text.mark == "grade" else Markup("")
    return Markup("<strong{}>{}</strong>").format(kind, visible(text.text))


def _kept_together(words: str) -> Markup:
    """Return words as HTML in which no range, interval or shape is broken over two lines."""
    found, end = Markup(""), 0
    for match in ATOMS.finditer(words):
        found += words[end : match.start()] + Markup('<span class="n">{}</span>').format(match[0])
        end = match.end()
    return found + words[end:]


def width_of(text: Text) -> str:
    """Return the class of a cell: long ones are wide."""
    return "wide" if len(in_plain(text)) > LONG else ""


def in_plain(text: Text) -> str:
    """Return the words alone, on one line."""
    if isinstance(text, str):
        return one_line(text)
    if isinstance(text, Marked):
        return one_line(text.text)
    return "".join(map(in_plain, text))
