"""The document model of the speed report: marked text, tables, lists and sections, for markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from gates.results.escape import code as code_in_markdown
from gates.results.escape import in_table, one_line, visible

CONFORMANCE = "CONFORMANCE.md"
ATOMS = re.compile(r"\d[\d,]* × \d[^\s;]*|(?:\d[\d.,]*× )?[^\s;]*\d–[^\s;]*")
LONG = 40  # characters; longer cells get a wider column


@dataclass(frozen=True, slots=True)
class Marked:
    """Text as code, in bold, or as a link."""

    text: str
    mark: str  # code, strong, grade
    link: str = ""


Text = str | Marked | Sequence["Text"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its heading."""

    head: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    caption: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list; a document that is too long may shorten it to `least` items, unless that is 0."""

    items: Sequence[Text]
    least: int = 0


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: a file for the markdown, inline panels for the page."""

    file: str
    caption: str
    panels: Sequence[str]


Part = Table | Items | Paragraph | Figure


@dataclass(slots=True)
class Section:
    """A heading with its content; in the page its id is `name`."""

    name: str
    title: str
    parts: list[Part] = field(default_factory=list)


def code(text: str) -> Marked:
    """Mark text as code."""
    return Marked(text, "code")


def strong(text: str, link: str = "") -> Marked:
    """Mark text as bold, and link it to a file in the report's folder if `link` names one."""
    return Marked(text, "strong", link)


def grade(name: str) -> Marked:
    """Mark a grade that replaces a time, linked to the conformance report."""
    return Marked(name, "grade", CONFORMANCE)


def joined(texts: Iterable[Text], separator: str = " · ") -> Text:
    """Return the texts with a separator between them."""
    parts: list[Text] = []
    for text in texts:
        parts += [separator, text] if parts else [text]
    return parts


def in_markdown(text: Text) -> str:
    """Render text for a cell, an item or a paragraph of markdown."""
    if isinstance(text, str):
        return _spaced(text)
    if not isinstance(text, Marked):
        return "".join(map(in_markdown, text))
    if text.mark == "code":
        return code_in_markdown(text.text, cell=True)
    bold = f"**{in_table(text.text)}**"
    return f"[{bold}]({text.link})" if text.link else bold


def _spaced(text: str) -> str:
    """Escape text for markdown and keep its leading spaces."""
    stripped = text.lstrip(" ")
    return " " * (len(text) - len(stripped)) + in_table(stripped)


def in_html(text: Text) -> Markup:
    """Render text as HTML without its links, since the page may be read without the files that they name."""
    if isinstance(text, str):
        return _kept_together(visible(text))
    if not isinstance(text, Marked):
        return Markup("").join(map(in_html, text))
    if text.mark == "code":  # a long name may break after an underscore
        return Markup("<code>{}</code>").format(Markup("_<wbr>").join(visible(text.text).split("_")))
    kind = Markup(' class="grade"') if text.mark == "grade" else Markup("")
    return Markup("<strong{}>{}</strong>").format(kind, visible(text.text))


def _kept_together(text: str) -> Markup:
    """Render text as HTML that breaks no range, interval or shape over two lines."""
    html, end = Markup(""), 0
    for match in ATOMS.finditer(text):
        html += text[end : match.start()] + Markup('<span class="n">{}</span>').format(match[0])
        end = match.end()
    return html + text[end:]


def width_of(text: Text) -> str:
    """Return the CSS class of a cell, `wide` for long text."""
    return "wide" if len(in_plain(text)) > LONG else ""


def in_plain(text: Text) -> str:
    """Render text without marks, on one line."""
    if isinstance(text, str):
        return one_line(text)
    if isinstance(text, Marked):
        return one_line(text.text)
    return "".join(map(in_plain, text))
