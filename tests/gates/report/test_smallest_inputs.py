"""Smallest failing inputs in every report format: description, file, and the command that judges them again."""

import html
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt  # rich brings it
from runs_on_file import FILE, HOSTILE, WORDS, none, smallest, verdict, write

from gates.config.format_names import ReportFormat
from gates.report import github
from gates.report.formats import render
from gates.report.smallest import sentence
from gates.results.jsonl import Results


@pytest.fixture
def run(tmp_path: Path) -> Results:
    """Write three failing gates; one has a smallest input, two have none for the same reason."""
    failing = [
        verdict("wrong", case=case, gate=gate) for gate in ("kl.k3", "loss", "ratio") for case in ("other", "some")
    ]
    return write(tmp_path / "run.jsonl", failing, also=[none("loss"), smallest(), none("ratio")])


@pytest.mark.parametrize("form", ["md", "text", "github", "junit", "html"])
def test_every_format_has_description_and_command(run: Results, form: ReportFormat) -> None:
    """The report has the failing claim, the numbers, the reduction in size, and a command quoted for a shell."""
    text = " ".join(html.unescape(render(form, [run])).split())
    assert WORDS in text
    assert "900 → 6 numbers, when the time ran out" in text
    folder = f"{run.path.parent}/" if form in {"text", "github"} else ""
    assert f"gates replay {shlex.quote(folder + FILE)}" in text


@pytest.mark.parametrize("form", ["md", "text", "github", "junit", "html"])
def test_every_command_names_interpreter_and_model(tmp_path: Path, form: ReportFormat) -> None:
    """The command repeats the options of the failing run, to judge the same thing."""
    small = smallest(python="/opt/my env/python", model="org/model")
    text = html.unescape(render(form, [write(tmp_path / "run.jsonl", [verdict("wrong", case="other")], also=[small])]))
    assert f"{FILE}' --python '/opt/my env/python' --model org/model" in text


def test_a_reason_for_not_shrinking_is_shown_once(run: Results) -> None:
    """A reason shared by many failures is shown once, with their names."""
    text = html.unescape(render("md", [run]))
    assert text.count("Not shrunk (a whole model): mine loss, mine ratio.") == 1


def test_a_screen_says_why_an_input_was_not_shrunk(tmp_path: Path) -> None:
    """The reason comes with the command, except if only the first failures are shrunk."""
    drawn = [
        smallest(gate=gate, words=words, elements_before=None, elements_after=None, finished=None)
        for gate, words in (
            ("kl.k3", "the search was stopped"),
            ("loss", "only the first 3 failures of a run are shrunk"),
        )
    ]
    failing = [verdict("wrong", gate=gate, case="other") for gate in ("kl.k3", "loss")]
    text = render("text", [write(tmp_path / "run.jsonl", failing, also=drawn)])
    assert text.count("gates replay ") == 2
    assert text.count("input as drawn, not shrunk: the search was stopped") == text.count("not shrunk") == 1


def test_an_annotation_has_the_description(run: Results) -> None:
    """One command per gate, the worst case on its first line, the smallest input on the second."""
    first, *others = github.commands([run])
    assert first.startswith("::error title=mine · kl.k3::wrong in 2 of 2 cases; kl.k3 · other: kl error in 2u·S is nan")
    assert f"%0Asmallest input that still fails (other, 900 → 6 numbers, when the time ran out): {WORDS}; " in first
    assert not [line for line in others if "smallest" in line]


def test_a_test_case_has_the_description_and_the_file(run: Results) -> None:
    """In JUnit, the failing case has them as properties and in its text; other cases do not."""
    top = ET.fromstring(render("junit", [run]))  # noqa: S314  our own text
    cases = {(c.get("classname"), c.get("name")): c for c in top.iter("testcase")}
    values = {p.get("name"): p.get("value") for p in cases["kl.k3", "other"].iter("property")}
    assert (values["smallest input"], values["smallest input in words"]) == (FILE, WORDS)
    failure = cases["kl.k3", "other"].find("failure")
    assert failure is not None
    assert failure.text == f"kl error in 2u·S is nan, must be <= 4 (at [1])\n{sentence(smallest())}"
    assert "smallest" not in ET.tostring(cases["kl.k3", "some"], encoding="unicode")


@pytest.mark.parametrize("form", ["md", "text", "github", "junit", "html"])
def test_hostile_text_is_shown_but_not_executed(tmp_path: Path, form: ReportFormat) -> None:
    """Hostile text, names and files create neither a command in the log nor a tag."""
    names = dict.fromkeys(("gate", "subject", "case"), HOSTILE)
    run = write(
        tmp_path / "run.jsonl",
        [verdict("wrong", reason=HOSTILE, **names)],
        also=[smallest(**names, words=HOSTILE, file=HOSTILE)],
    )
    text = render(form, [run])
    assert "alert(1)" in text
    assert "\x1b" not in text
    ours = github.commands([run])
    assert len(ours) == 1
    if form != "html":  # a page is no log
        commands = [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert commands == (ours if form == "github" else [])
    if form in {"html", "junit"}:
        assert "<script>alert" not in text
    if form == "md":
        blocks = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {token.type for block in blocks for token in (block, *(block.children or ()))}
        assert not kinds & {"html_block", "html_inline", "link_open", "image"}


def test_the_summary_stays_below_one_megabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three thousand long failures are cut at a line, and a last line counts the missing ones."""
    failing = [verdict("wrong", gate=f"g{number}") for number in range(3000)]
    also = [smallest("some", gate=f"g{number}", words=WORDS * 10) for number in range(3000)]
    text = render("md", [write(tmp_path / "run.jsonl", failing, also=also)])
    assert len(text.encode()) > github.SUMMARY_LIMIT
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    github.append_summary(text)
    found = (tmp_path / "summary.md").read_text()
    assert len(found.encode()) < github.SUMMARY_LIMIT
    assert "completion 3 of 4, token 7: got 0, want -0.03125" in found
    assert "lines are not shown" in found.splitlines()[-1]
