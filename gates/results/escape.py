"""Escape untrusted text of subjects and files for terminals and markdown."""

from __future__ import annotations

import re

# C0, DEL and C1 (terminal commands; not newline and tab), line separators, bidirectional controls, which reorder the
# displayed text (Unicode 9, table 4), and surrogates, which UTF-8 cannot encode
OBEYED = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# markup that a backslash escapes (CommonMark 0.31, GitHub's tables, strikethrough and formulas); underscores inside a
# word, `<` before a number and the like are not markup
MARKS = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|[|`*~$]|<(?=[A-Za-z/!?])|\](?=[(\[])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|^>|^[#+-](?=[\s#-]|$)"
)


def visible(text: str) -> str:
    r"""Return the text with control characters as `\u001b`, which in a JSON string is the same character."""
    if text.removesuffix("\n").isprintable():  # a fast path for most lines: no control character is printable
        return text
    return OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    """Return text on one line, since a line that starts with `::` is a command in GitHub's logs."""
    return visible(" ".join(text.splitlines()))


def in_table(text: str) -> str:
    """Return text for a table cell or a list item in markdown, with all markup escaped.

    Leading spaces are removed: after up to three of them markup still starts a block, and four start a code block.
    """
    return MARKS.sub(r"\\\g<0>", one_line(text).lstrip(" \t"))


def code(text: str, *, cell: bool = False) -> str:
    """Return text as inline code in markdown, between more backticks than it contains; in a table `|` is escaped."""
    line = one_line(text)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    shown = line.replace("|", "\\|") if cell else line
    return f"{fence}{room}{shown}{room}{fence}"
