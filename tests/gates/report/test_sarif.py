"""SARIF 2.1.0: one result for each op that is not correct, at the line of its function."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import RIGHT, here
from runs_on_file import HOSTILE, verdict, write

from gates.report import github
from gates.report.formats import render
from gates.results.jsonl import Results
from gates.results.records import Location, SubjectRecord

WRONG = RIGHT.replace("ddof=ddof", "ddof=1 - ddof")


def only_run(run: Results) -> dict[str, Any]:
    """Return the document's run."""
    document = json.loads(render("sarif", [run]))
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (only,) = document["runs"]
    assert only["tool"]["driver"]["name"] == "Gates"
    return only


def located(path: Path, file: str) -> Results:
    """Return a run with a wrong op whose function is on line 7 of a file."""
    record = SubjectRecord(
        subject="mine", provides=["kl"], versions={}, locations={"kl.k3": Location(file=file, line=7)}
    )
    run = write(path, [verdict("wrong")])
    run.subjects.append(record)
    return run


class TestDocument:
    """What code scanning reads."""

    @pytest.mark.parametrize(
        ("status", "fail_on", "level"),
        [
            ("wrong", "raises", "error"),
            ("fragile", "raises", "warning"),
            ("fragile", "fragile", "error"),
            ("error", "wrong", "error"),
            ("timeout", "wrong", "error"),
            ("waived", "raises", "note"),
            ("hardening", "raises", "note"),
            ("hardening", "hardening", "error"),
        ],
    )
    def test_the_level_follows_fail_on(self, tmp_path: Path, status: Any, fail_on: str, level: str) -> None:
        run = only_run(write(tmp_path / "run.jsonl", [verdict(status)], fail_on=fail_on))
        assert [result["level"] for result in run["results"]] == [level]

    def test_a_correct_op_has_no_result(self, tmp_path: Path) -> None:
        run = only_run(write(tmp_path / "run.jsonl", [verdict()]))
        assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])
        assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": [], "exitCode": 0}]

    def test_a_rule_is_a_gate_and_a_result_points_to_it(self, tmp_path: Path) -> None:
        """A known gate has its question; one of another version its id."""
        verdicts = [verdict("wrong", gate=gate) for gate in ("kl.k3.matches-definition", "of.another.version")]
        run = only_run(write(tmp_path / "run.jsonl", verdicts))
        rules = run["tool"]["driver"]["rules"]
        assert [rule["id"] for rule in rules] == ["kl.k3.matches-definition", "of.another.version"]
        assert rules[0]["shortDescription"]["text"].endswith("?")
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["message"]["text"]
            assert result["partialFingerprints"]

    def test_text_of_a_subject_is_data(self, tmp_path: Path) -> None:
        """The document is JSON without control characters."""
        text = render("sarif", [write(tmp_path / "run.jsonl", [verdict("wrong", reason=HOSTILE)])])
        assert "\x1b" not in text
        assert HOSTILE in json.loads(text)["runs"][0]["results"][0]["message"]["text"]

    def test_an_unfinished_run_is_a_notification(self, tmp_path: Path) -> None:
        cut = only_run(write(tmp_path / "cut.jsonl", [verdict()], complete=False, planned=9))
        (invocation,) = cut["invocations"]
        assert not invocation["executionSuccessful"]
        assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "incomplete: 1 of 9"


class TestLocation:
    """File and line of the subject's function."""

    @pytest.mark.parametrize(
        ("file", "uri"), [("ci/my kl.py", "ci/my%20kl.py"), ("/lib/my kl.py", "file:///lib/my%20kl.py")]
    )
    def test_it_is_a_uri(self, tmp_path: Path, file: str, uri: str) -> None:
        """Relative to the working directory where it is below it."""
        (result,) = only_run(located(tmp_path / "run.jsonl", file))["results"]
        (location,) = result["locations"]
        assert location["physicalLocation"] == {"artifactLocation": {"uri": uri}, "region": {"startLine": 7}}

    def test_annotations_name_it(self, tmp_path: Path) -> None:
        (line,) = github.commands([located(tmp_path / "run.jsonl", "a,b.py")])
        assert line.startswith("::error file=a%2Cb.py,line=7,title=mine")

    @pytest.mark.slow
    def test_of_a_judged_file(self, tmp_path: Path) -> None:
        """A check has the line behind a decorator, and the report of its file is the same document."""
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "mine_gates.py").write_text(
            "import functools\n\ndef same(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)\n    return g\n"
            + WRONG.replace("def group", "@same\ndef group")
        )
        check = ("check", "sub/mine_gates.py", "advantages.matches-definition", "--quick", "--no-minimise")
        done = here(*check, "--format", "sarif", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        (result,) = json.loads(done.stdout)["runs"][0]["results"]
        assert result["level"] == "error"
        assert "ddof" in result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"] == {
            "artifactLocation": {"uri": "sub/mine_gates.py"},
            "region": {"startLine": 11},
        }
        (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
        assert here("report", str(file), "--out", "a.sarif", cwd=tmp_path).returncode == 0
        assert (tmp_path / "a.sarif").read_text() == done.stdout
