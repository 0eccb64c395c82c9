"""The page of a library, and the letter to its maintainers."""

import re
from pathlib import Path

import pytest
from libraries import finding, grade, header

from gates.report.conformance import letters, library
from gates.report.conformance.cells import matrix
from gates.report.conformance.words import shared
from gates.results.conformance_records import BlankRecord, ConformanceResults, read_conformance

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "results" / "conformance"
FILES = sorted(FOLDER.glob("*.jsonl"))
MOST_WORDS = 45


def page(*libraries: ConformanceResults) -> str:
    """Return the page of the first library."""
    return library.render(libraries[0], matrix(libraries, {}), shared(libraries))


def fake(peer: str = "fake") -> ConformanceResults:
    return ConformanceResults(
        header(peer),
        [
            grade(peer, "training_step[grpo]", "correct"),
            grade(peer, "policy_loss[sapo]", "correct").model_copy(update={"settings": ["tau 1 (2)"]}),
            grade(peer, "token_kl[k3]", "wrong", (f"{peer}-k3",)),
        ],
        findings=[
            finding(f"{peer}-choice", "convention"),
            finding(f"{peer}-k3", "bug"),
            finding(f"{peer}-first", "bug").model_copy(update={"use": "default"}),
        ],
        blanks=[BlankRecord(op="kto_loss", kind="not judged", why="a closure")],
    )


class TestPage:
    """results/conformance/NAME.md."""

    def test_what_it_does_well_stands_first(self) -> None:
        text = page(fake())
        order = ["## What it does well", "## Findings", "### Bugs", "### Conventions", "## Not judged", "## Coverage"]
        assert [text.index(title) for title in order] == sorted(text.index(title) for title in order)
        assert "token by token: GRPO (8 of 9 cases)." in text
        assert "Its functions agree with the definition: SAPO (8 of 9 cases, not the default)." in text

    def test_a_finding_has_its_anchor_use_place_number_and_program(self) -> None:
        text = page(fake(), fake("other"))
        entry = text[text.index("#### fake-k3") : text.index("### Conventions")]
        for words in (
            "The ratio is inverted. The penalty pulls the other way.",
            "- holds with a documented option",
            "- `fake/kl.py:3`",
            "- measured: 2 | 3",
            "- grade: **wrong**, `token_kl[k3]`",
            "- rows: KL",
            "- the same in: other",
            "`gates peers repro fake-k3`",
            "assert True",
        ):
            assert words in entry

    def test_default_runs_come_first(self) -> None:
        text = page(fake())
        assert text.index("#### fake-first") < text.index("#### fake-k3")

    def test_blanks_have_their_reasons(self) -> None:
        text = page(fake())
        assert "- KTO: not judged: a closure" in text
        assert "- Absent, no class, function, argument or file has its name: " in text
        assert "- tau 1 (2): `policy_loss[sapo]`" in text


class TestLetter:
    """results/conformance/letters/NAME.md."""

    def test_bugs_are_told_with_programs_and_conventions_are_not(self) -> None:
        text = letters.render(fake())
        assert "would like you to see 2 things before we announce them" in text
        assert "## 1. first" in text
        assert "fake-choice" not in text
        assert text.count("```python") == 2

    def test_one_thing_is_one_thing(self) -> None:
        found = fake()
        del found.findings[1]
        assert "see one thing before we announce it. It comes with a program" in letters.render(found)

    def test_without_a_bug_there_is_nothing_to_tell(self) -> None:
        assert "Nothing to tell" in letters.render(ConformanceResults(header("fake")))

    def test_what_was_not_reproduced_is_not_told(self) -> None:
        found = ConformanceResults(header("fake"), findings=[finding("fake-k3", "bug", reproduced=False)])
        assert letters.told(found) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestRecorded:
    """The pages that `make generate` writes."""

    def test_every_finding_has_one_anchor(self, path: Path) -> None:
        text = path.with_suffix(".md").read_text(encoding="utf-8")
        anchors = re.findall(r"^#### (\S+)$", text, re.MULTILINE)
        assert sorted(anchors) == sorted(finding.id for finding in read_conformance(path).findings)

    def test_the_sentences_of_a_finding_have_at_most_45_words(self, path: Path) -> None:
        lengths = {found.id: len(library.prose(found).split()) for found in read_conformance(path).findings}
        assert {name: words for name, words in lengths.items() if words > MOST_WORDS} == {}

    def test_a_letter_is_ready(self, path: Path) -> None:
        text = (FOLDER / "letters" / f"{path.stem}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# To the maintainers of {path.stem}\n")


def test_every_link_of_the_pages_exists() -> None:
    """Files and anchors, of the matrix and of the pages of libraries."""
    pages = [ROOT / "results" / "CONFORMANCE.md", *(path.with_suffix(".md") for path in FILES)]
    missing = []
    for file in pages:
        text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
            name, _, anchor = link.partition("#")
            target = file.parent / name if name else file
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                missing.append(f"{file.name}: {link}")
    assert missing == []


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
