"""`gates identify` and `gates check` on wrong programs of other ops than policy losses: those of tests/bugs/known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import gates

BUGS = Path(__file__).parents[2] / "bugs" / "known"


@pytest.mark.parametrize(
    ("bug", "op", "gate", "words"),
    [
        (
            "preference_ipo_target",
            "preference_loss",
            "preference.ipo.matches-definition",
            "target 1/β (asked: 1/(2β))",
        ),
        (
            "sampler_crossing_token",
            "filtered_logprobs",
            "sampling.filters.keep-the-right-tokens",
            "top-p without the token whose mass reaches p",
        ),
    ],
)
class TestBugs:
    """One wrong program of each family."""

    def test_identify(self, tmp_path: Path, bug: str, op: str, gate: str, words: str) -> None:
        """With nothing asked: the definition, and what is changed of it."""
        shutil.copy(BUGS / f"{bug}.py", tmp_path)
        done = gates("identify", f"./{bug}.py", op, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        (found,) = json.loads(done.stdout)
        assert (found["kind"], found["inputs"]) == ("mistake", 8)
        assert words in found["computes"]

    def test_check(self, tmp_path: Path, bug: str, op: str, gate: str, words: str) -> None:
        """In the row of the op."""
        shutil.copy(BUGS / f"{bug}.py", tmp_path)
        done = gates("check", gate, "--quick", "--jobs", "1", "--no-minimise", "--subject", f"./{bug}.py", cwd=tmp_path)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"computes: {words}" in " ".join(done.stdout.split())
