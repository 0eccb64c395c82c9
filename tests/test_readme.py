"""README's examples run, and recorded runs are whole."""

from __future__ import annotations

import json
import os
import re
from itertools import islice
from pathlib import Path

import jsonschema
import pytest
from command_line import gates

from gates.report.grades import Grades
from gates.results.jsonl import Results, read
from gates.results.read_lines import whole_lines
from gates.results.speed_file import SpeedResults, read_speed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
KERNELS = (ROOT / "rust" / "rlkernels-python" / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
TARGETS = {a or b for a, b in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", README, re.MULTILINE)}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_is_run_by_ci(target: str) -> None:
    """Each make target that README names is run by .ci/run."""
    assert re.search(rf"make {target}\b", (ROOT / ".ci" / "run").read_text())


def test_the_kernels_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the kernels' own page prints a loss."""
    (code,) = re.findall(r"```python\n(.*?)```", KERNELS, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  the README of this repository
    assert re.match(r"-?\d+\.\d+ \(8, 3\) 0\.0", capsys.readouterr().out)


SUBJECTS = [block for kind, block in BLOCKS if kind == "python" and "OPS" in block]


@pytest.mark.parametrize("code", SUBJECTS, ids=lambda code: code.splitlines()[0])
def test_judging_needs_sixteen_lines(code: str) -> None:
    """Judging your own code takes at most 16 lines, blank ones included, in NumPy, torch and MLX."""
    assert len(SUBJECTS) == 3
    assert len(code.splitlines()) <= 16


@pytest.mark.parametrize("framework", ["torch", "mlx"])
def test_the_quick_start_says_what_is_shown(framework: str, tmp_path: Path) -> None:
    """The command beside a file prints the verdict beside it."""
    arguments, verdict = re.search(rf"`gates (check kl_{framework}_gates[^`]*)`:\s`([^`]+)`", README).groups()
    (code,) = (block for block in SUBJECTS if block.startswith(f"# kl_{framework}_gates.py"))
    (tmp_path / f"kl_{framework}_gates.py").write_text(code, encoding="utf-8")
    python = os.environ.get("TORCH_PYTHON", "")
    if framework == "torch" and not python:
        pytest.skip("TORCH_PYTHON names no interpreter with torch and NumPy")
    done = gates(*arguments.replace("PYTHON_WITH_TORCH", python).split(), "--no-minimise", cwd=tmp_path)
    assert done.returncode == (1 if verdict.startswith("WRONG") else 0), done.stdout
    assert verdict in " ".join(done.stdout.split())


def test_every_recorded_run_is_complete_and_of_a_clean_commit() -> None:
    """Committed results are complete and of a commit without changes."""
    recorded = [read(path) for path in sorted((ROOT / "results" / "gates").glob("*.jsonl*"))]
    assert recorded
    for run in recorded:
        assert run.state == "complete", run.path
        assert run.header.commit, run.path
        assert run.header.dirty is False, run.path


def computes(run: Results, op: str) -> str:
    """Return the description of a wrong op before its number."""
    descriptions = [
        diagnosis.computes
        for diagnosis in run.diagnoses
        if (diagnosis.subject, diagnosis.op) == ("rlox", op) and diagnosis.computes
    ]
    return f"computes: {descriptions[0]} " if descriptions else ""


def test_the_explained_grades_are_recorded() -> None:
    """The example has the numbers of a recorded run."""
    (block,) = (" ".join(block.split()) for _, block in BLOCKS if block.startswith("rlox "))
    shown = re.findall(r"(WRONG|FRAGILE) (\S+) (.*?) \((\d+) of (\d+) cases?\)", block)
    recorded = [read(path) for path in sorted((ROOT / "results" / "gates").glob("check-*.jsonl*"))]
    grades = {
        (
            grade.status.upper(),
            grade.op,
            f"{computes(run, grade.op)}{grade.verdict.reason}",
            str(grade.like),
            str(grade.cases),
        )
        for run in recorded
        for grade in Grades.of(run.judged).grades("rlox")
    }
    assert len(shown) == 2
    assert set(shown) <= grades


def test_recorded_lines_match_the_published_schema() -> None:
    """Every recorded line validates against results/schema.json."""
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "results" / "schema.json").read_text()))
    for path in sorted((ROOT / "results" / "gates").glob("*.jsonl*")):
        for _, line in islice(
            whole_lines(path), 200
        ):  # a validation takes milliseconds; a proof has thousands of lines
            validator.validate(json.loads(line))


def speeds() -> list[SpeedResults]:
    """Return every recorded speed file."""
    return [read_speed(path) for path in sorted((ROOT / "results" / "bench").glob("*.jsonl"))]


def test_recorded_speed_runs_are_complete_and_of_a_clean_commit() -> None:
    """None is a smoke test."""
    for run in speeds():
        assert run.state == "complete", run.path
        assert run.header.commit, run.path
        assert not run.header.dirty, run.path
        assert not run.header.quick, run.path


def test_recorded_runs_are_small() -> None:
    """At most 10 MB in all; runs are compressed, the summary of calibrations is text."""
    assert sum(path.stat().st_size for path in (ROOT / "results" / "gates").rglob("*") if path.is_file()) <= 10e6
