"""What a terminal would obey, written so that it is seen: results files, subjects and counterexamples are others' words."""

from __future__ import annotations

import re

# C0, DEL and C1 (a terminal's commands; not newline and tab), the line separators, the bidirectional controls, which
# show words in another order than they have (Unicode 9, table 4), and the halves of a surrogate pair, which no UTF-8 has
OBEYED = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return the text with such characters as `\u001b`, which in a string of JSON is the same character."""
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a subject's words on one line, so that in a log of GitHub none of them starts one and is a command."""
    return visible(" ".join(text.splitlines()))


def in_table(text: str) -> str:
    """Return a subject's words for a row of a table in markdown, or a line of a list."""
    return one_line(text).replace("|", "\\|")
