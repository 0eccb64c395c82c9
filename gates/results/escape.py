"""Escape text of others for terminals and markdown: results files, subjects and counterexamples may hold anything."""

from __future__ import annotations

import re

# C0, DEL and C1 (a terminal's commands; not newline and tab), the line separators, the bidirectional controls, which
# change the order in which text is shown (Unicode 9, table 4), and the halves of a surrogate pair, which no UTF-8 has
OBEYED = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# what markdown takes for markup (CommonMark 0.31, GitHub's tables, strikethrough and formulas), and a backslash escapes.
# Underscores inside a word, `<` before a number and the like are not markup
MARKS = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|[|`*~$]|<(?=[A-Za-z/!?])|\](?=[(\[])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|^>|^[#+-](?=[\s#-]|$)"
)


def visible(text: str) -> str:
    r"""Return the text with control characters as `\u001b`, which in a JSON string is the same character."""
    if text.removesuffix("\n").isprintable():  # faster, and true of most lines: no control character is printable
        return text
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return text on one line: in a log of GitHub a line that starts with `::` would be a command."""
    return visible(" ".join(text.splitlines()))


def in_table(text: str) -> str:
    """Return text for a table cell or a list item in markdown, with all markup escaped.

    Leading spaces are removed: after up to three of them a mark still begins a block, and four begin a code block.
    """
    return MARKS.sub(r"\\\g<0>", one_line(text).lstrip(" \t"))


def code(text: str, *, cell: bool = False) -> str:
    """Return text as inline code in markdown, between more backticks than it contains; in a table `|` is escaped."""
    words = one_line(text)
    longest = max((len(found) for found in re.findall("`+", words)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    shown = words.replace("|", "\\|") if cell else words
    return f"{fence}{room}{shown}{room}{fence}"
