"""Smallest inputs on the page: in the evidence of their case, in one list, and the links between the two."""

import re
from pathlib import Path

import pytest
from chromium import Browser, shown, wrong
from pages import Elements
from runs_on_file import FILE, HOSTILE, WORDS, none, smallest, verdict, write

from gates.report.html import render_html

COMMAND = f"gates replay '{FILE}'"
FOCUSED = "document.activeElement.{}"
NOT_COVERED = """(() => {
  const box = document.activeElement.getBoundingClientRect();
  return document.elementFromPoint(box.x + 5, box.y + 5).closest("summary") === document.activeElement;
})()"""
SMALL = "document.querySelector('#cases .small')"


@pytest.fixture
def run(tmp_path: Path) -> list[Path]:
    """Write a gate with a smallest input in one of two failing cases, one without, and a record without its verdict."""
    verdicts = [
        verdict("wrong", case="other"),
        verdict("wrong", case="some"),
        verdict("wrong", gate="loss"),
        verdict(gate="ratio"),
    ]
    also = [smallest(), none("loss").model_copy(update={"case": "some"}), smallest(gate="zone")]
    write(tmp_path / "run.jsonl", verdicts, also=also)
    return [tmp_path / "run.jsonl"]


class TestFile:
    """The content of the file."""

    def test_the_list_has_description_and_command(self, run: list[Path]) -> None:
        """Each entry has its text and command, and a link to its table cell if there is one."""
        page = Elements(render_html(run))
        text = "".join(data for tag, data in page.texts if tag not in {"script", "style"})
        assert text.count(COMMAND) == 3  # of the op, and in the list, also of the gate without a verdict
        goes = [a["data-goes"] for tag, a in page.found if tag == "button" and "data-smallest" in a]
        assert goes == ["0/0"]
        assert "1 failure was not shrunk: a whole model" in page.text("summary")

    def test_script_controls_are_hidden_without_scripts(self, run: list[Path]) -> None:
        """Controls without a function are hidden; the command can still be selected."""
        page = Elements(render_html(run))
        kinds = [a for tag, a in page.found if tag == "button" and a.get("class") in {"goes", "copy"}]
        assert len(kinds) == 2 + 3 + 1
        assert all("hidden" in attributes for attributes in kinds)

    def test_rendering_is_deterministic(self, run: list[Path]) -> None:
        assert render_html(run) == render_html(run)


class TestBrowser:
    """The page in a browser."""

    def test_the_evidence_shows_the_smallest_input(self, chromium: Browser, run: list[Path], tmp_path: Path) -> None:
        """Text, size, file name and command are in the evidence of their case only."""
        page = shown(chromium, run, tmp_path)
        page.value("document.querySelector('td.wrong button').click()")
        cases = "[...document.querySelectorAll('#cases details')].map(e => [e.querySelector('summary').innerText, !!e.querySelector('.small')])"
        assert page.value(cases) == [["✗ wrong other", True], ["✗ wrong some", False]]
        text = page.value(f"{SMALL}.innerText")
        for words in (WORDS, "900 → 6 numbers, when the time ran out", FILE, COMMAND):
            assert words in text
        assert wrong(page) == []

    def test_a_case_without_a_smallest_input_has_a_reason(
        self, chromium: Browser, run: list[Path], tmp_path: Path
    ) -> None:
        """The recorded reason replaces it."""
        page = shown(chromium, run, tmp_path)
        page.value("document.querySelectorAll('td.wrong button')[1].click()")
        assert page.value(f"{SMALL}.innerText") == "Not shrunk: a whole model"

    @pytest.mark.parametrize("place", ["#cases", "#smallest-0"], ids=["in the evidence", "in the list"])
    def test_the_command_is_copied_by_keyboard(
        self, chromium: Browser, run: list[Path], tmp_path: Path, place: str
    ) -> None:
        """Enter on the button copies, or selects if the browser refuses; both are announced to screen readers."""
        page = shown(chromium, run, tmp_path)
        if place == "#cases":
            page.value("document.querySelector('td.wrong button').click()")
        page.value(f"document.querySelector('{place} button.copy').focus()")
        assert page.value(FOCUSED.format("getAttribute('aria-label')")).startswith("Copy the command for ")
        page.press("Enter")
        page.value("new Promise(done => setTimeout(done, 100))", wait=True)
        said = page.value(
            "document.getElementById('said').textContent + document.getElementById('said-here').textContent"
        )
        assert said in {"Copied", "Selected: copy it with the keyboard"}
        if said != "Copied":
            assert page.value("getSelection().toString()") == COMMAND

    def test_the_evidence_links_to_the_list(self, chromium: Browser, run: list[Path], tmp_path: Path) -> None:
        """The link closes the evidence and focuses the item."""
        page = shown(chromium, run, tmp_path)
        page.value("document.querySelector('td.wrong button').click()")
        page.value(f"{SMALL}.querySelector('a').focus()")
        page.press("Enter")
        assert not page.value("document.querySelector('dialog').open")
        assert page.value(FOCUSED.format("id")) == "smallest-0"
        assert wrong(page) == []

    @pytest.mark.parametrize(
        ("button", "case"),
        [("#smallest-0 button.goes", "✗ wrong other"), ("ul.reasons li:nth-child(2) button.goes", "✗ wrong some")],
        ids=["smallest input", "what did not hold"],
    )
    def test_the_list_opens_the_evidence(
        self, chromium: Browser, run: list[Path], tmp_path: Path, button: str, case: str
    ) -> None:
        """Enter opens the evidence at the case, not covered by the bar (WCAG 2.2, 2.4.11); Escape returns to the button."""
        page = shown(chromium, run, tmp_path, width=400, height=500)
        page.value(f"document.querySelector('{button}').focus()")
        before = page.value(FOCUSED.format("getAttribute('aria-label')"))
        page.press("Enter")
        assert page.value("document.querySelector('dialog').open")
        assert page.value(FOCUSED.format("innerText")) == case
        assert page.value(FOCUSED.format("parentElement.open"))
        assert page.value(NOT_COVERED)
        page.press("Escape")
        assert page.value(FOCUSED.format("getAttribute('aria-label')")) == before
        assert wrong(page) == []

    def test_controls_have_distinct_names(self, chromium: Browser, run: list[Path], tmp_path: Path) -> None:
        """Names of buttons and links are distinct for screen readers."""
        page = shown(chromium, run, tmp_path)
        nodes = [n for n in page.send("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
        for role in ("button", "link"):
            names = [str(n["name"]["value"]) for n in nodes if n["role"]["value"] == role]
            own = [name for name in names if re.match(r"(Evidence|Copy|Smallest)", name)]
            assert own
            assert len(own) == len(set(own)), role

    def test_hostile_text_is_escaped(self, chromium: Browser, tmp_path: Path) -> None:
        """Markup in a record is text, in the list and in the evidence."""
        names = dict.fromkeys(("gate", "subject", "case"), HOSTILE)
        path = tmp_path / "run.jsonl"
        write(path, [verdict("wrong", **names)], also=[smallest(**names, words=HOSTILE, file=HOSTILE)])
        page = shown(chromium, [path], tmp_path)
        page.value("document.querySelector('#smallest-0 button.goes').click()")
        assert "<script>alert(1)</script>" in page.value(f"{SMALL}.textContent")
        assert page.value("document.querySelectorAll('script').length") == 2
        assert wrong(page) == []


def test_gates_that_judged_nothing_are_folded(chromium: Browser, tmp_path: Path) -> None:
    """They are hidden at first, the status line says so, and a checkbox shows them."""
    write(tmp_path / "run.jsonl", [verdict(), *(verdict("unsupported", gate=f"loss.g{n:02}") for n in range(11))])
    page = shown(chromium, [tmp_path / "run.jsonl"], tmp_path)
    assert page.value("shown.textContent") == "1 of 12 gates, 1 subject"
    page.value("judged.click()")
    assert page.value("shown.textContent") == "12 of 12 gates, 1 subject"
