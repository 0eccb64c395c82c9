"""What a terminal would obey, written so that it is seen: results files, subjects and counterexamples are others' words."""

from __future__ import annotations

import re

# C0, DEL and C1 (a terminal's commands; not newline and tab), the line separators, the bidirectional controls, which
# show words in another order than they have (Unicode 9, table 4), and the halves of a surrogate pair, which no UTF-8 has
OBEYED = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# what markdown takes for markup (CommonMark 0.31, GitHub's tables, strikethrough and formulas): a backslash before it shows
# it. Underscores inside a word, `<` before a number and the like are none
MARKS = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|[|`*~$]|<(?=[A-Za-z/!?])|\](?=[(\[])|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])|^>|^[#+-](?=[\s#-]|$)"
)


def visible(text: str) -> str:
    r"""Return the text with such characters as `\u001b`, which in a string of JSON is the same character."""
    if text.removesuffix("\n").isprintable():  # half the time, and true of most lines: none of them is printable
        return text
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a subject's words on one line, so that in a log of GitHub none of them starts one and is a command."""
    return visible(" ".join(text.splitlines()))


def in_table(text: str) -> str:
    """Return others' words for a cell or a line of a list in markdown: read as they are written, and no markup.

    Spaces before them, which nobody would see, go: behind up to three of them a mark still begins a block, behind four is code.
    """
    return MARKS.sub(r"\\\g<0>", one_line(text).lstrip(" \t"))


def code(text: str, *, cell: bool = False) -> str:
    """Return others' words as code in markdown, between more backticks than they have; in a table a `|` is escaped."""
    words = one_line(text)
    longest = max((len(found) for found in re.findall("`+", words)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    shown = words.replace("|", "\\|") if cell else words
    return f"{fence}{room}{shown}{room}{fence}"
