"""Every format calls the cases of an op that makes another choice `differs`, and a waiver of that grade waives nothing else."""

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from command_line import here
from runs_on_file import verdict, write

from gates.errors import ConfigurationError
from gates.report.baseline import compare
from gates.report.files import render_files
from gates.report.page_data import gather
from gates.results.jsonl import read
from gates.results.records import DiagnosisRecord, Record, SettledRecord, WaiverRecord
from gates.run.settle import settled_lines_of

TEXT = """
from gates.subjects.numpy_baseline import subject as plain

def group_advantages(**inputs):
    {body}

OPS = {{"group_advantages": group_advantages}}
CONVENTIONS = {{"group_advantages": {{"scale": ("group",), "baseline": ("mean",), "eps_mode": ("add",), "ddof": (1,)}}}}
"""
ANOTHER = 'return plain.OPS["group_advantages"](**{**inputs, "ddof": 0})'
MISTAKE = 'return {"advantages": -plain.OPS["group_advantages"](**inputs)["advantages"]}'
DECLARE = "group z-score with ddof 0 (asked: 1); declare ddof=(0,) if it is meant"
WAIVER = """
[[waivers]]
id = "advantages.matches-definition"
subject = "mine"
reason = "divides by G, as its paper"
issue = "#1"
owner = "ada"
expires = 2999-01-31
"""


def check(folder: Path, body: str, *options: str, waiver: str = "") -> tuple[int, str]:
    """Return the exit code and the words of a check, with a waiver if one is given."""
    (folder / "mine.py").write_text(TEXT.format(body=body))
    (folder / "gates.toml").write_text(waiver)
    command = ["check", "advantages.matches-definition", "--subject", "./mine.py", "--waivers", "gates.toml"]
    done = here(*command, "--no-minimise", *options, cwd=folder)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("form", ["junit", "github", "md"])
def test_each_format_names_the_choice(tmp_path: Path, form: str) -> None:
    """As a failure by default; not under `--fail-on wrong`."""
    code, text = check(tmp_path, ANOTHER, "--format", form)
    assert code == 1
    assert form == "md" or DECLARE in text
    assert {
        "junit": "<failure" in text and 'name="status" value="differs"' in text and 'value="wrong"' not in text,
        "github": "::error file=mine.py,line=4,title=mine · group_advantages::differs in " in text,
        "md": "### Another choice" in text or "Another choice" in text,
    }[form], text
    code, text = check(tmp_path, ANOTHER, "--format", form, "--fail-on", "wrong")
    assert code == 0, text
    assert {
        "junit": "<failure" not in text and "differs, which does not fail a run" in text,
        "github": "::warning file=mine.py,line=4,title=mine · group_advantages::differs in " in text
        and "::error" not in text,
        "md": "Another choice" in text,
    }[form], text


def test_a_waiver_of_differs_waives_another_choice(tmp_path: Path) -> None:
    """The op is shown as waived; JUnit skips its cases."""
    waiver = WAIVER + 'grade = "differs"\n'
    code, text = check(tmp_path, ANOTHER, waiver=waiver)
    assert code == 0, text
    assert "WAIVED group_advantages" in text
    assert "differs, waived until 2999-01-31 by ada (#1): divides by G, as its paper" in text
    code, text = check(tmp_path, ANOTHER, "--format", "junit", waiver=waiver)
    assert (code, "<failure" in text, "<skipped" in text) == (0, False, True), text


def test_a_waiver_of_differs_does_not_hide_a_mistake(tmp_path: Path) -> None:
    """The op stays wrong, and the waiver is not needed."""
    code, text = check(tmp_path, MISTAKE, waiver=WAIVER + 'grade = "differs"\n')
    assert code == 1, text
    assert "WRONG group_advantages" in text
    assert "for mine, grade differs (ada, #1) is no longer needed, since nothing it names is differs" in text


def test_another_grade_is_not_waived(tmp_path: Path) -> None:
    code, text = check(tmp_path, ANOTHER, waiver=WAIVER + 'grade = "fragile"\n')
    assert code == 1, text
    assert "DIFFERS group_advantages" in text


@pytest.mark.parametrize("body", [ANOTHER, MISTAKE], ids=["another choice", "a mistake"])
@pytest.mark.parametrize("grade", ["", 'grade = "wrong"\n'], ids=["no grade", "wrong"])
def test_a_waiver_without_a_grade_waives_every_failure(tmp_path: Path, body: str, grade: str) -> None:
    """As it always did; one of `wrong` waives wrong numbers, before their diagnosis."""
    assert check(tmp_path, body, waiver=WAIVER + grade)[0] == 0


def test_an_unknown_grade_is_refused(tmp_path: Path) -> None:
    code, text = check(tmp_path, ANOTHER, waiver=WAIVER + 'grade = "difers"\n')
    assert code == 2
    assert "grade" in text


class TestRecords:
    """A file whose lines say `wrong` ends with what the diagnosis makes of them, and every reader says that."""

    @pytest.fixture
    def checked(self, tmp_path: Path) -> Path:
        """Return the file of a check of an op that makes another choice."""
        code, _ = check(tmp_path, ANOTHER, "--out", "runs")
        assert code == 1
        (path,) = (tmp_path / "runs").glob("*.jsonl")
        return path

    def test_the_last_lines_settle_the_wrong_ones(self, checked: Path) -> None:
        """Their cases are exactly those with `wrong`; the summary counts the lines as they were written."""
        run = read(checked)
        (line,) = run.settled
        wrong = {(v.gate, v.case) for v in run.verdicts if v.status == "wrong"}
        assert wrong == {(gate, case) for gate, cases in line.cases.items() for case in cases}
        assert (line.subject, line.op, line.status) == ("mine", "group_advantages", "differs")
        assert run.settled == settled_lines_of(run)
        assert [json.loads(text)["record"] for text in checked.read_text().splitlines()[-2:]] == ["settled", "summary"]

    def test_no_reader_counts_a_mistake(self, checked: Path) -> None:
        """JSON has `differs` in verdicts and counts, JSONL the settling line, the page `differs` in its cells."""
        wrong = sum(v.status == "wrong" for v in read(checked).verdicts)
        (run,) = json.loads("".join(render_files([checked], "json", None)))["runs"]
        assert Counter(v["status"] for v in run["verdicts"]) == +Counter(run["summary"]["counts"])
        assert (run["summary"]["counts"]["wrong"], run["summary"]["counts"]["differs"]) == (0, wrong)
        assert [item["kind"] for item in run["diagnoses"]] == ["convention"]
        *_, last = map(json.loads, "".join(render_files([checked], "jsonl", None)).splitlines())
        assert (last["record"], last["status"]) == ("settled", "differs")
        page = gather([checked])
        assert (page.counted()["wrong"], page.counted()["differs"]) == (0, wrong)
        assert page.cell("advantages.matches-definition", "mine")[0] == "differs"

    def test_the_lines_on_standard_output_are_those_of_the_report(self, checked: Path) -> None:
        """Apart from the order of the cases and the seconds that each took."""
        folder = checked.parent.parent
        command = ["check", "advantages.matches-definition", "--subject", "./mine.py", "--no-minimise", "--format"]
        printed = here(*command, "jsonl", cwd=folder).stdout
        rendered = "".join(render_files([checked], "jsonl", None))

        def timeless(text: str) -> list[dict[str, Any]]:
            verdicts = [json.loads(line) | {"seconds": 0} for line in text.splitlines()[:-1]]
            return sorted(verdicts, key=lambda verdict: str(verdict["case"]))

        assert timeless(printed) == timeless(rendered)
        assert printed.splitlines()[-1] == rendered.splitlines()[-1]


def recorded(path: Path, *also: Record, **changes: Any) -> Path:
    """Write a run with one wrong case, whose op makes another choice."""
    named = DiagnosisRecord(
        subject="mine", op="kl.k3", gate="kl.k3", case="some", kind="convention", computes="k2", rho=1.0, next_rho=99.0,
        tried=3, inputs=8, seconds=0.0,
    )  # fmt: skip
    return write(path, [verdict("wrong"), verdict(case="other")], also=[named, *also], **changes).path


def test_a_waived_choice_is_waived_everywhere(tmp_path: Path) -> None:
    waiver = WaiverRecord(
        id="kl.k3", subject="mine", reason="as its paper", issue="#1", owner="ada", expires=date(2999, 1, 31),
        grade="differs", whole=True,
    )  # fmt: skip
    path = recorded(tmp_path / "run.jsonl", waivers=[waiver])
    assert [line.status for line in settled_lines_of(read(path))] == ["waived"]
    assert gather([path]).counted() == {"correct": 1, "waived": 1}


def test_a_line_settles_only_what_is_wrong(tmp_path: Path) -> None:
    line = SettledRecord(subject="mine", op="kl.k3", status="differs", cases={"kl.k3": ["other"]})
    with pytest.raises(ConfigurationError, match=r"settles mine · kl.k3 · other, which no line before it calls wrong"):
        recorded(tmp_path / "run.jsonl", line)


def test_a_mistake_after_another_choice_is_worse(tmp_path: Path) -> None:
    """A baseline is compared by what its diagnoses settled."""
    before = read(recorded(tmp_path / "before.jsonl"))
    after = write(tmp_path / "after.jsonl", [verdict("wrong"), verdict(case="other")])
    (change,) = compare(before, after).changes
    assert (change.kind, change.before, change.after) == ("worse", "differs", "wrong")
