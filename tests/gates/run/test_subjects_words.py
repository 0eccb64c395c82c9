"""Messages to a subject's author say what was found, what was expected and where."""

from pathlib import Path

import pytest
from command_line import here

from gates.run.compare import worst

SUBJECT = """
import numpy as np
def deep(rewards):
    {body}
def group_advantages(rewards, **rest):
    return {{"advantages": deep(rewards)}}
OPS = {{"group_advantages": group_advantages}}
{tail}
"""


@pytest.mark.parametrize(
    ("body", "tail", "words"),
    [
        ("raise ValueError('bad')", "", "ValueError: bad (mine.py:4, in deep)"),
        ("raise ValueError", "", "raised: ValueError (mine.py:4, in deep)"),
        ("raise NotImplementedError", "", "unsupported: mine: NotImplementedError without a reason ("),
        ("return object()", "", "return NumPy arrays, numbers, text, lists or dicts of them\n"),
        ("return rewards.astype(object)", "", "dtype object does not cross the wire; it must hold numbers"),
        ("return rewards", "VERSIONS = 3", "gates: mine.py, line 8: VERSIONS is a int, must be a dict"),
        ("return rewards", "DEPARTURES_DOCUMENTED = 'x'", "line 8: DEPARTURES_DOCUMENTED is a str, must be a dict"),
        ("return rewards", "CONVENTIONS = [1]", "mine.py, line 8: CONVENTIONS is a list, must be a dict"),
        (
            "return rewards",
            "CONVENTIONS = {'group_advantages': 3}",
            "mine.py, line 8: CONVENTIONS['group_advantages'] is 3, must be a dict from a convention to its choices",
        ),
    ],
)
def test_an_error_names_its_line(tmp_path: Path, body: str, tail: str, words: str) -> None:
    """The last frame that is the subject's own, and the remedy."""
    (tmp_path / "mine.py").write_text(SUBJECT.format(body=body, tail=tail))
    done = here(
        "check",
        "advantages.matches-definition",
        "--quick",
        "--no-minimise",
        "-v",
        "--subject",
        "./mine.py",
        cwd=tmp_path,
    )
    assert words in done.stdout + done.stderr
    assert (done.returncode == 2) == words.endswith(("must be a dict", "to its choices"))


def test_numbers_that_differ_are_shown_to_differ() -> None:
    """Nine digits are enough where they tell the two apart, and seventeen are shown where they do not."""
    assert worst(1.0, 2.0) == (1.0, "got 1, want 2")
    assert worst(1.0, 1.0 + 2.0**-50)[1] == "got 1, want 1.0000000000000009"
