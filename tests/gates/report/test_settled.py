"""Every format calls the cases of an op that makes another choice `differs`, and a waiver of that grade waives nothing else."""

from pathlib import Path

import pytest
from command_line import here

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
