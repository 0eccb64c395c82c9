"""Citations of docs/definitions.md: every cited section exists, and every name that Gates judges is defined there."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gates import registry

ROOT = Path(__file__).parents[2]
PAGE = "docs/definitions.md"
# The heading may stand on the next line of a comment.
CITED = re.compile(re.escape(PAGE) + r',[\s#/!]*\\?"([^"\\]+)\\?"')
NAMED = ("algorithm", "loss", "correction", "estimator", "strategy", "order", "eps_mode", "dapo_denominator")

pytestmark = pytest.mark.fast


@cache
def page() -> str:
    """Return the text of the definitions."""
    return (ROOT / PAGE).read_text(encoding="utf-8")


@cache
def headings() -> frozenset[str]:
    """Return its headings as plain text."""
    return frozenset(re.findall(r"^#+ (.+)$", page(), re.MULTILINE))


def sources() -> Iterator[tuple[str, str]]:
    """Yield every tracked Python and Rust file except this one, with its text."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            yield name, path.read_text(encoding="utf-8")


def test_every_cited_section_exists() -> None:
    """A citation names a heading of the page, word for word."""
    cited = [
        (name, re.sub(r"\s*\n[\s#/!]*", " ", citation)) for name, text in sources() for citation in CITED.findall(text)
    ]
    assert len(cited) >= 30, f"only {len(cited)} citations of {PAGE} were found; has its name changed?"
    wrong = sorted({f'{name}: "{heading}"' for name, heading in cited if heading not in headings()})
    assert not wrong, f"no such heading in {PAGE}, must be one of {sorted(headings())}: {wrong}"


def test_no_file_cites_a_document_outside_the_repository() -> None:
    wrong = [name for name, text in sources() if re.search(r"semantics\.md|project's semantics|semantics page", text)]
    assert not wrong, f"cite {PAGE} with a heading instead: {wrong}"


def test_the_page_has_a_version() -> None:
    """Results record it, and it is the newest of its table."""
    top = re.search(r"^Version (\d+\.\d+) \((\d{4}-\d{2}-\d{2})\)$", page(), re.MULTILINE)
    assert top, f"{PAGE} must have a line like `Version 1.0 (2026-11-23)`"
    versions = re.findall(r"^\| (\d+\.\d+) \| (\d{4}-\d{2}-\d{2}) \|", page().split("## Versions")[1], re.MULTILINE)
    assert versions[-1] == top.groups()


def test_every_link_within_the_page_has_its_heading() -> None:
    """GitHub makes an anchor of a heading: lower case, punctuation dropped, spaces to hyphens."""
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings()}
    assert set(re.findall(r"\]\(#([^)]+)\)", page())) - anchors == set()


def test_every_op_is_defined() -> None:
    """The page has the name of every gated op, set as code."""
    ops = {op.name for gate in registry.load().gates.values() for op in gate.ops}
    assert ops
    assert {op for op in ops if f"`{op}`" not in page()} == set()


def test_every_choice_of_a_convention_is_defined() -> None:
    """The page has algorithms, losses and other choices of cases, set as code."""
    cases = [case for gate in registry.load().gates.values() for case in gate.cases]
    choices = {value for case in cases for name in NAMED if isinstance(value := case.conventions.get(name), str)}
    assert {"grpo", "gspo", "dpo", "tis", "k3", "hf"} <= choices
    assert {value for value in choices if f"`{value}`" not in page()} == set()
