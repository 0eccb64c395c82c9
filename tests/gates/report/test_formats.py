"""Recorded runs in every format: deterministic, complete, and safe against markup in a subject's text."""

import json
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from junitparser import Error, Failure, JUnitXml, Properties, Skipped
from runs_on_file import HOSTILE, verdict, write
from typer.testing import CliRunner

from gates.cli import output
from gates.cli.verbs import app
from gates.config.format_names import CheckFormat, ReportFormat
from gates.model import ConfigurationError, Verdict
from gates.report import github
from gates.report.formats import render
from gates.report.text import Screen
from gates.results.jsonl import Results
from gates.run.session import Tally

RESULTS = {"correct": [], "wrong": [Failure], "departs": [Failure], "error": [Error], "skipped": [Skipped]}


@pytest.fixture
def run(tmp_path: Path) -> Results:
    """Return a run with one verdict of each status and one failure with hostile text."""
    verdicts = [
        verdict("correct"),
        verdict("wrong", case="other"),
        verdict("wrong", gate="kl.k1", reason=HOSTILE),
        verdict("wrong", gate="loss", cause="departs"),
        verdict("error", gate="packing"),
        verdict("unsupported", gate="ratio"),
        verdict("skipped", subject="peer", reason="it is not here"),
        verdict("skipped", subject="peer", case="other", reason="it is not here"),
    ]
    return write(tmp_path / "run.jsonl", verdicts, problems=["required, but skipped: peer"])


@pytest.mark.parametrize("form", get_args(ReportFormat))
def test_rendering_twice_gives_the_same_bytes(run: Results, form: ReportFormat, tmp_path: Path) -> None:
    """Every format is a pure function of the file, also on the command line."""
    once = render(form, [run])
    assert render(form, [run]) == once
    done = CliRunner().invoke(app, ["report", str(run.path), "--format", form, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out").read_text(encoding="utf-8") == once


class TestJson:
    """One document, and one line per verdict."""

    def test_the_document_has_every_record(self, run: Results) -> None:
        """Header, verdicts with their evidence, and summary, under their kinds."""
        (found,) = json.loads(render("json", [run]))["runs"]
        assert [v["reason"] for v in found["verdicts"]] == [v.reason for v in run.verdicts]
        assert found["verdicts"][1]["evidence"][1]["observed"] == "nan"
        assert found["summary"]["problems"] == ["required, but skipped: peer"]
        assert (found["header"]["planned"], found["state"]) == (8, "complete")

    def test_grades_and_totals(self, run: Results) -> None:
        """The document has one grade per subject and op, and totals per subject."""
        (found,) = json.loads(render("json", [run]))["runs"]
        assert {(g["op"], g["grade"]) for g in found["grades"]} >= {("kl.k3", "wrong"), ("loss", "departs")}
        assert found["totals"]["mine"] == {"wrong": 2, "error": 1, "departs": 1, "not judged": 1}

    def test_lines_are_the_verdicts(self, run: Results) -> None:
        recorded = [line for line in run.path.read_text().splitlines() if '"verdict"' in line]
        assert render("jsonl", [run]).splitlines() == recorded


class TestJunit:
    """The format that CI servers read."""

    def test_one_test_case_per_verdict_with_its_evidence(self, run: Results) -> None:
        """Every verdict is a test case of its subject's suite, and evidence is its properties."""
        top = ET.fromstring(render("junit", [run]))  # noqa: S314  our own text
        cases = {(s.get("name"), c.get("classname"), c.get("name")): c for s in top for c in s.iter("testcase")}
        asked = [v for v in run.verdicts if v.status != "unsupported"]
        assert {key for key in cases if key[0] != "gates"} == {(v.subject, v.gate, v.case) for v in asked}
        failed = cases["mine", "kl.k3", "other"]
        values = {p.get("name"): p.get("value") for p in failed.iter("property")}
        assert values["kl error in 2u·S"] == "kl error in 2u·S is nan, must be <= 4 (at [1])"
        assert (values["seed"], values["status"]) == ("7", "wrong")
        assert failed.find("failure") is not None

    @pytest.mark.parametrize(
        ("suite", "counts"),
        [("mine", ("5", "3", "1", "0")), ("peer", ("2", "0", "0", "2")), ("gates", ("1", "0", "1", "0"))],
    )
    def test_the_counts_are_those_of_the_cases(self, run: Results, suite: str, counts: tuple[str, ...]) -> None:
        """Failures, errors and skipped cases are counted; an unmet requirement is an error of the run."""
        top = ET.fromstring(render("junit", [run]))  # noqa: S314  our own text
        (found,) = (s for s in top if s.get("name") == suite)
        assert tuple(found.get(name) for name in ("tests", "failures", "errors", "skipped")) == counts

    def test_undeclared_choices_are_left_out(self, run: Results) -> None:
        """A subject with five ops of fifty has no forty-five skipped tests; their number is a property of its suite."""
        top = ET.fromstring(render("junit", [run]))  # noqa: S314  our own text
        found = {
            suite.get("name"): {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
            for suite in top
        }
        assert found == {"mine": {"left out: unsupported": "1"}, "peer": {}, "gates": {}}

    def test_a_run_that_measured_nothing_is_an_error(self, tmp_path: Path) -> None:
        """Otherwise the document would be empty and count as a success."""
        nothing = write(tmp_path / "nothing.jsonl", [verdict("unsupported")])
        top = ET.fromstring(render("junit", [nothing]))  # noqa: S314  our own text
        assert [(suite.get("name"), suite.get("tests"), suite.get("errors")) for suite in top] == [
            ("mine", "0", "0"),
            ("gates", "1", "1"),
        ]
        assert top[1][0].get("name") == "nothing was measured"

    def test_the_standard_parser_reads_it(self, run: Results) -> None:
        """Junitparser reads the suites' counts and times, and each case's result and properties."""
        for suite in JUnitXml.fromstring(render("junit", [run]).encode()):
            stated = (suite.tests, suite.failures, suite.errors, suite.skipped, suite.time)
            suite.update_statistics()
            assert (suite.tests, suite.failures, suite.errors, suite.skipped, suite.time) == stated
            for case in suite:
                properties = {found.name: found.value for found in case.child(Properties) or ()}
                results = [type(result) for result in case.result]
                assert results == ([Error] if suite.name == "gates" else RESULTS[properties["status"]])

    @pytest.mark.parametrize(("fail_on", "kinds"), [("wrong", []), ("fragile", [Failure])])
    def test_a_milder_grade_is_not_a_failure(self, tmp_path: Path, fail_on: str, kinds: list[type]) -> None:
        found = write(tmp_path / "mild.jsonl", [verdict("fragile")], fail_on=fail_on)
        ((case,),) = JUnitXml.fromstring(render("junit", [found]).encode())
        assert [type(result) for result in case.result] == kinds
        words = "fragile, which does not fail a run with --fail-on wrong: why it is fragile"
        assert case.system_out == (None if kinds else words)

    def test_characters_forbidden_in_xml_are_escaped(self, run: Results) -> None:
        """With an escape character in a subject's text the document is well-formed, and markup stays text."""
        top = ET.fromstring(render("junit", [run]))  # noqa: S314  our own text
        (words,) = (f.get("message") for f in top.iter("failure") if "alert" in str(f.get("message")))
        assert words == HOSTILE.replace("\x1b", "\\u001b")

    def test_an_unfinished_run_is_an_error(self, tmp_path: Path) -> None:
        cut = write(tmp_path / "cut.jsonl", [verdict()], complete=False, planned=9)
        assert 'name="incomplete: 1 of 9"' in render("junit", [cut])

    @pytest.mark.parametrize("form", ["junit", "sarif", "github"])
    def test_a_proof_is_refused_in_this_format(self, tmp_path: Path, form: ReportFormat) -> None:
        """A failing mutant is a success, which these formats cannot express."""
        proof = write(tmp_path / "proof.jsonl", [verdict("wrong", mutant="m")], verb="prove")
        with pytest.raises(ConfigurationError, match="shows checks"):
            render(form, [proof])


class TestGithub:
    """Annotations and step summary."""

    def test_annotations_are_escaped(self, run: Results) -> None:
        """Each annotation is one line; %, CR and LF are escaped, in the title also : and the comma (`command.ts`)."""
        strange = verdict("wrong", gate="a:b,c%", reason="100%\r\nof, all: it")
        (line,) = github.commands([write(run.path.with_name("strange.jsonl"), [strange])])
        assert (
            line == "::error title=mine · a%3Ab%2Cc%25::wrong in 1 of 1 case; a:b,c%25 · some: 100%25%0D%0Aof, all: it"
        )

    def test_errors_come_first_and_skips_are_warnings(self, run: Results) -> None:
        """GitHub shows ten of each type; a skipped subject is reported once."""
        lines = github.commands([run])
        kinds = [line.split(" ")[0] for line in lines]
        assert kinds == ["::error"] * 5 + ["::warning"]
        assert lines[0] == "::error title=gates::required, but skipped: peer"
        assert lines[-1] == "::warning title=peer · skipped::it is not here (2 cases)"

    @pytest.mark.parametrize(("fail_on", "level"), [("wrong", "warning"), ("fragile", "error")])
    def test_a_milder_grade_is_a_warning(self, tmp_path: Path, fail_on: str, level: str) -> None:
        found = write(tmp_path / "mild.jsonl", [verdict("fragile")], fail_on=fail_on)
        (line,) = github.commands([found])
        assert line.startswith(f"::{level} title=mine · kl.k3::fragile in 1 of 1 case")

    def test_a_subject_that_does_not_start_is_one_annotation(self, tmp_path: Path) -> None:
        """Its reason is reported once, with the number of cases."""
        dead = [verdict("wrong", gate=gate, cause="start", reason="it has no OPS") for gate in ("a", "b")]
        assert github.commands([write(tmp_path / "dead.jsonl", dead)]) == [
            "::error title=mine · wrong::it has no OPS (2 cases)"
        ]

    def test_subject_text_cannot_start_a_line(self, run: Results) -> None:
        """A subject cannot give commands to the runner: only Gates writes `::` at the start of a line."""
        lines = render("github", [run]).splitlines()
        ours = github.commands([run])
        assert [line for line in lines if line.lstrip().startswith("::")] == ours

    @pytest.mark.parametrize("size", [10, 200, 1000, 5000])
    def test_the_summary_is_cut_at_a_line(self, size: int) -> None:
        """It stays within the limit, has complete lines only, and ends with the number of missing ones."""
        lines = [f"line {i} with an é" for i in range(200)]
        found = github.cut("\n".join(lines) + "\n", size)
        assert len(found.encode()) <= size
        if size >= 200:
            kept = found.splitlines()
            if size < 5000:
                assert f"{200 - len(kept) + 2} of 200 lines are not shown" in kept[-1]
                kept = kept[:-2]
            assert kept == lines[: len(kept)]

    def test_the_summary_is_appended_below_one_megabyte(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Earlier content stays, and the total is below 1,048,576 bytes."""
        file = tmp_path / "summary.md"
        file.write_text("before\n")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
        github.append_summary("line\n" * 500_000)
        assert file.read_text().startswith("before\nline\n")
        assert 1_048_000 < file.stat().st_size < 1_048_576
        github.append_summary("more\n" * 500)
        assert file.stat().st_size < 1_048_576

    def test_a_summary_that_cannot_be_written_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The run continues, because its verdicts do not depend on the summary."""
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/proc/nowhere")
        github.append_summary("x")
        assert "was not written to /proc/nowhere" in capsys.readouterr().err


class TestText:
    """Lines for people."""

    def test_a_recorded_run_looks_like_the_live_run(self, run: Results) -> None:
        """The output has a row per op that is not correct, skipped subjects, the reasons of failure, and the exit code last."""
        lines = render("text", [run]).splitlines()
        assert lines[-1] == "exit 1: 2 wrong, 1 error, 1 departs, 1 requirement unmet"
        assert "peer · not judged: it is not here" in lines
        assert "required, but skipped: peer" in lines
        assert any(line.startswith("  DEPARTS    loss ") for line in lines)

    def test_a_proof_shows_its_mutants(self, tmp_path: Path) -> None:
        """Caught and missed, with the number of cases."""
        verdicts = [verdict(), verdict("wrong", mutant="a"), verdict("correct", mutant="b")]
        lines = render("text", [write(tmp_path / "p.jsonl", verdicts, verb="prove")]).splitlines()
        assert "CAUGHT      a by kl.k3: 1 of 1 cases" in lines
        assert "MISSED      b by kl.k3: 0 of 1 cases" in lines

    def test_an_interrupted_run_is_reported_from_its_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """After Ctrl-C between writing and showing a verdict, the written one counts."""
        run = write(tmp_path / "r.jsonl", [verdict(), verdict(case="other")], complete=False, planned=3)
        Screen(3).interrupted(run.path)
        assert capsys.readouterr().err == f"interrupted: incomplete: 2 of 3; they are in {run.path}\n"

    def test_subject_text_is_not_markup(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Brackets in a name or a reason are printed literally and stay on their line."""
        screen = Screen(1, verbose=True)
        screen.verdict(Verdict("g", "[/red]", "c", 0, "skipped", "absent", "[/bold] and [red]"))
        screen.verdict(Verdict("g", "[/red]", "c", 0, "wrong", "bound", "one\ntwo"))
        screen.end(Path("run.jsonl"), Tally())
        text = capsys.readouterr().out
        assert "skipped: [/red]: [/bold] and [red] (1)" in text
        assert "WRONG       [/red] · g · c: one two\n" in text


class TestChoice:
    """The default format of `gates check`."""

    @pytest.mark.parametrize(
        ("form", "as_json", "actions", "wanted"),
        [
            (None, False, "", "text"),
            (None, False, "true", "github"),
            ("md", False, "true", "md"),
            (None, True, "true", "jsonl"),
            ("jsonl", True, "", "jsonl"),
        ],
    )
    def test_github_is_the_default_in_actions(
        self, monkeypatch: pytest.MonkeyPatch, form: CheckFormat | None, as_json: bool, actions: str, wanted: str
    ) -> None:
        """An explicit format takes precedence; `--json` means jsonl."""
        monkeypatch.setenv("GITHUB_ACTIONS", actions)
        assert output.chosen(form, as_json=as_json) == wanted

    def test_json_excludes_other_formats(self) -> None:
        with pytest.raises(ConfigurationError, match="--format md"):
            output.chosen("md", as_json=True)
