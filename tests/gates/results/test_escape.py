"""Others' words in markdown: read as they are written, obeyed by nothing, as an independent parser sees them."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # rich brings it

from gates.results.escape import OBEYED, code, in_table, one_line, visible

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NASTY = st.lists(
    st.sampled_from([*"ab1 \\`*_~[]()<>!|&#;:$-+=/\"'.", "&lt;", "](x)", "<script>", "<!--", "http://x"]), max_size=30
).map("".join)


def seen(markdown: str) -> tuple[str, set[str]]:
    """Return what a reader sees of one paragraph, and which kinds of markup it has."""
    _, inline, _ = PARSER.parse(markdown)
    children = inline.children or []
    return "".join(child.content for child in children), {child.type for child in children} - {"text", "text_special"}


@given(NASTY)
@example("__init__ and _x_ and a_b")
@example("![x](http://x/y.png) [a](b) <img src=x onerror=y> &amp; \\* `code` **b** ~~s~~")
@example("$x^2$ <!-- --> </details>")
def test_words_are_no_markup(text: str) -> None:
    """No link, image, emphasis, code or HTML comes of them, and every character is seen."""
    words, kinds = seen(f"x {in_table(text)} y")
    assert kinds <= set()
    assert words.split() == f"x {one_line(text)} y".split()


@given(NASTY)
@example("- item")
@example("# title")
@example("> quote")
@example(" > quote")
def test_words_start_no_block(text: str) -> None:
    """In a line of a list they are text of that line, never a list, a heading or a quotation in it."""
    kinds = {token.type for token in PARSER.parse(f"- {in_table(text)}")}
    blocks = ("heading", "blockquote", "fence", "html_block", "hr", "link", "image")
    assert not [kind for kind in kinds if kind.startswith(blocks)]


@given(NASTY)
def test_words_do_not_end_a_cell(text: str) -> None:
    """A row of three cells stays one, whatever the middle one holds, as words or as code."""
    for middle in (in_table(text), code(text, cell=True)):
        table = PARSER.parse(f"|a|b|c|\n|---|---|---|\n| 1 | {middle} | 3 |\n")
        cells = [table[place + 1].content for place, token in enumerate(table) if token.type == "td_open"]
        assert (len(cells), cells[0], cells[2]) == (3, "1", "3")


@given(NASTY.filter(lambda text: text.strip()))
def test_code_is_seen_whole(text: str) -> None:
    """However many backticks it has, it is one piece of code with all of its characters."""
    words, kinds = seen(f"x {code(text)} y")
    assert kinds == {"code_inline"}
    assert words.split() == f"x {one_line(text)} y".split()


@pytest.mark.parametrize(
    "text", ["must be <= 17.5 (at [0, 1]: got nan)", "loss.dr-grpo", "-inf", "a < b & c", "kv_heads 1"]
)
def test_plain_words_stay_plain(text: str) -> None:
    """What no parser would take for markup is not escaped: the file is read as text too."""
    assert not re.search(r"\\", in_table(text))


def test_every_character_that_is_obeyed_is_written_out() -> None:
    """Alone, and in front of a newline: none of them passes for printable."""
    obeyed = [character for character in map(chr, range(sys.maxunicode + 1)) if OBEYED.match(character)]
    assert len(obeyed) > 2048 + 64  # the halves of pairs, and C0, DEL and C1
    for character in obeyed:
        assert visible(character) == visible(f"{character}\n")[:-1] == f"\\u{ord(character):04x}"
