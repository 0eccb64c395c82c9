"""Untrusted text in markdown is rendered literally by an independent parser."""

import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # a dependency of rich

from gates.results.escape import OBEYED, code, in_table, one_line, visible

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NASTY = st.lists(
    st.sampled_from([*"ab1 \\`*_~[]()<>!|&#;:$-+=/\"'.", "&lt;", "](x)", "<script>", "<!--", "http://x"]), max_size=30
).map("".join)


def rendering(markdown: str) -> tuple[str, set[str]]:
    """Return the rendered text of one paragraph, and the kinds of markup in it."""
    _, inline, _ = PARSER.parse(markdown)
    children = inline.children or []
    return "".join(child.content for child in children), {child.type for child in children} - {"text", "text_special"}


@given(NASTY)
@example("__init__ and _x_ and a_b")
@example("![x](http://x/y.png) [a](b) <img src=x onerror=y> &amp; \\* `code` **b** ~~s~~")
@example("$x^2$ <!-- --> </details>")
def test_text_is_not_markup(text: str) -> None:
    """It becomes no link, image, emphasis, code or HTML, and every character is shown."""
    rendered, kinds = rendering(f"x {in_table(text)} y")
    assert kinds <= set()
    assert rendered.split() == f"x {one_line(text)} y".split()


@given(NASTY)
@example("- item")
@example("# title")
@example("> quote")
@example(" > quote")
def test_text_starts_no_block(text: str) -> None:
    """In a list item it stays text, never a nested list, heading or quotation."""
    kinds = {token.type for token in PARSER.parse(f"- {in_table(text)}")}
    blocks = ("heading", "blockquote", "fence", "html_block", "hr", "link", "image")
    assert not [kind for kind in kinds if kind.startswith(blocks)]


@given(NASTY)
def test_text_does_not_end_a_cell(text: str) -> None:
    """A row of three cells keeps three cells, with text or code in the middle."""
    for middle in (in_table(text), code(text, cell=True)):
        table = PARSER.parse(f"|a|b|c|\n|---|---|---|\n| 1 | {middle} | 3 |\n")
        cells = [table[position + 1].content for position, token in enumerate(table) if token.type == "td_open"]
        assert (len(cells), cells[0], cells[2]) == (3, "1", "3")


@given(NASTY.filter(lambda text: text.strip()))
def test_code_is_rendered_unchanged(text: str) -> None:
    """With any backticks it is one code span with all characters."""
    rendered, kinds = rendering(f"x {code(text)} y")
    assert kinds == {"code_inline"}
    assert rendered.split() == f"x {one_line(text)} y".split()


@pytest.mark.parametrize(
    "text", ["must be <= 17.5 (at [0, 1]: got nan)", "loss.dr-grpo", "-inf", "a < b & c", "kv_heads 1"]
)
def test_plain_text_is_not_escaped(text: str) -> None:
    """Text that no parser takes for markup stays readable in the source."""
    assert not re.search(r"\\", in_table(text))


def test_every_control_character_is_escaped() -> None:
    obeyed = [character for character in map(chr, range(sys.maxunicode + 1)) if OBEYED.match(character)]
    assert len(obeyed) > 2048 + 64  # surrogates, and C0, DEL and C1
    for character in obeyed:
        assert visible(character) == visible(f"{character}\n")[:-1] == f"\\u{ord(character):04x}"
