"""`-k`: an expression over the names of cases."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from command_line import RIGHT, here

from gates.cli import expression
from gates.model import ConfigurationError

NAME = "loss.grpo.matches-definition mine padded-float32 policy_loss"


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("grpo", True),
        ("GRPO", True),
        ("dapo", False),
        ("not dapo", True),
        ("grpo and not float16", True),
        ("grpo and float16 or padded", True),
        ("grpo and (float16 or padded-float32)", True),
        ("not (grpo or dapo)", False),
        ("not not grpo", True),
        ("loss.grpo", True),
    ],
)
def test_it_reads_as_in_pytest(text: str, matches: bool) -> None:
    """`and` binds closer than `or`, `not` closest; a name matches by a part, in any case."""
    assert expression.parse(text)(NAME) is matches


@pytest.mark.parametrize(
    "text", ["", "(", "grpo and", "and grpo", "grpo dapo", "(grpo", "grpo)", "not", "()", "a or or b"]
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    """The message quotes it and shows one."""
    with pytest.raises(ConfigurationError, match="an expression is like"):
        expression.parse(text)


NAMES = ("grpo", "dapo", "not grpo", "not dapo")


@pytest.mark.parametrize(("first", "second"), list(itertools.product(("and", "or"), repeat=2)))
@pytest.mark.parametrize("form", ["{} {} {} {} {}", "({} {} {}) {} {}", "{} {} ({} {} {})", "not ({} {} {} {} {})"])
def test_it_agrees_with_python(form: str, first: str, second: str) -> None:
    """Python evaluates the same words over whether each is part of the name."""
    for left, middle, right in itertools.product(NAMES, repeat=3):
        text = form.format(left, first, middle, second, right)
        assert expression.parse(text)(NAME) is eval(text, {"grpo": True, "dapo": False}), text  # noqa: S307


def test_an_expression_without_cases_is_a_usage_error(tmp_path: Path) -> None:
    """Nothing is judged in silence."""
    (tmp_path / "mine.py").write_text(RIGHT)
    done = here("check", "mine.py", "-k", "no-such-case", cwd=tmp_path)
    assert done.returncode == 2
    assert "matches none of" in done.stderr
