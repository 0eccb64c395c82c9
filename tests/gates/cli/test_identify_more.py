"""`gates identify` and `gates check` on wrong programs of other ops than policy losses: those of tests/bugs/known."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import gates

BUGS = Path(__file__).parents[2] / "bugs" / "known"


@pytest.mark.parametrize(
    ("bug", "op", "gate", "message"),
    [
        ("preference_ipo_target", "preference_loss", "preference.ipo.matches-definition", "target 1/β (asked: 1/(2β))"),
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

    def test_identify_names_the_change(self, tmp_path: Path, bug: str, op: str, gate: str, message: str) -> None:
        shutil.copy(BUGS / f"{bug}.py", tmp_path)
        done = gates("identify", f"./{bug}.py", op, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        (finding,) = json.loads(done.stdout)
        assert (finding["kind"], finding["inputs"]) == ("mistake", 8)
        assert message in finding["computes"]

    def test_check_names_the_change(self, tmp_path: Path, bug: str, op: str, gate: str, message: str) -> None:
        shutil.copy(BUGS / f"{bug}.py", tmp_path)
        done = gates("check", gate, "--quick", "--jobs", "1", "--no-minimise", "--subject", f"./{bug}.py", cwd=tmp_path)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"computes: {message}" in " ".join(done.stdout.split())
