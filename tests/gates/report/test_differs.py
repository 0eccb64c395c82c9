"""Another known choice differs and a mistake is wrong; what no pipeline produces costs no grade."""

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
RAISES = 'raise IndexError("no such row")'


def check(folder: Path, body: str, *options: str) -> tuple[int, str]:
    (folder / "mine.py").write_text(TEXT.format(body=body))
    done = here(
        "check", "advantages.matches-definition", "--subject", "./mine.py", "--no-minimise", *options, cwd=folder
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("body", "words", "codes"),
    [
        (ANOTHER, "DIFFERS group_advantages computes: group z-score with ddof 0 (asked: 1); declare ddof=(0,)", (1, 0)),
        (MISTAKE, "WRONG group_advantages computes: ", (1, 1)),
        (RAISES, "RAISES group_advantages group_advantages raised: IndexError: no such row", (1, 0)),
    ],
    ids=["another choice", "a mistake", "an exception"],
)
def test_the_grade_and_the_exit_code(tmp_path: Path, body: str, words: str, codes: tuple[int, int]) -> None:
    """By default all three fail; under `--fail-on wrong` a mistake does."""
    code, text = check(tmp_path, body)
    assert (code, words in text) == (codes[0], True), text
    assert check(tmp_path, body, "--fail-on", "wrong")[0] == codes[1]


def test_what_is_declared_is_correct(tmp_path: Path) -> None:
    """The line names the declaration with which the same function is what is asked."""
    (tmp_path / "mine.py").write_text(TEXT.format(body=ANOTHER).replace('"ddof": (1,)', '"ddof": (0,)'))
    options = ["advantages.matches-definition", "--subject", "./mine.py"]
    assert here("check", *options, cwd=tmp_path).returncode == 0


def test_hardening_costs_no_grade(tmp_path: Path) -> None:
    """One line says how much holds; `--strict` fails on it."""
    body = """if inputs["rewards"].strides[0] != inputs["rewards"].itemsize:
        inputs["rewards"] = inputs["rewards"] * 2 + 1
        inputs["eps"] = 0.5
    return plain.OPS["group_advantages"](**inputs)"""
    code, text = check(tmp_path, body)
    assert code == 0, text
    assert "hardening 0 of 2 cases hold, on input that no pipeline produces; not group_advantages" in text
    assert check(tmp_path, body, "--strict")[0] == 1
