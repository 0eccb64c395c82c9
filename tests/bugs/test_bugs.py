"""The diagnosis names bugs that people write, and none wrongly: the programs beside this file.

`make record` asks about all of them (tools/diagnosis_proof.py); here it is one of each family, and what was recorded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ONE_OF_EACH = (
    "advantages_numpy_std",
    "kl_full_by_kl_div",
    "logprobs_no_temperature",
    "loss_width_and_kl",
    "preference_halves",
    "ratio_arithmetic_mean",
    "sampling_top_p_crossing",
)


def proof(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own."""
    command = [sys.executable, str(ROOT / "tools" / "diagnosis_proof.py"), "--jobs", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What `make record` wrote."""
    found: dict[str, Any] = json.loads((ROOT / "results" / "judge" / "diagnosis.json").read_text(encoding="utf-8"))
    return found


def test_one_of_each_family_is_named() -> None:
    """By the words that each expects."""
    done = proof(*(f"blind/{name}" for name in ONE_OF_EACH))
    assert done.returncode == 0, done.stdout
    named = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("named ")}
    assert named == {f"blind/{name}.py:" for name in ONE_OF_EACH}


def test_another_name_is_a_failure(tmp_path: Path) -> None:
    """A name that is not the expected one, and any name where none is expected."""
    text = (HERE / "blind" / "kl_k3_arguments.py").read_text(encoding="utf-8")
    (words,) = [line for line in text.splitlines() if line.startswith("COMPUTES = ")]
    (tmp_path / "kl_other.py").write_text(text.replace(words, 'COMPUTES = "k2"'), encoding="utf-8")
    (tmp_path / "kl_none.py").write_text(text.replace(words, "COMPUTES = None"), encoding="utf-8")
    done = proof("--programs", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("is misnamed") == 2


def test_the_record_has_every_program(recorded: dict[str, Any]) -> None:
    """Nine in ten of those that can be named are, none is misnamed, and every place is the expected one."""
    programs = recorded["programs"]
    assert set(programs) == {f"{path.parent.name}/{path.name}" for path in HERE.glob("*/*_*.py")}
    assert not [name for name, one in programs.items() if one["outcome"] == "misnamed"]
    assert all(one["place_as_expected"] for one in programs.values())
    outcomes = [one["outcome"] for one in programs.values() if one["expected"] is not None]
    assert outcomes.count("named") >= 0.9 * len(outcomes)


def test_the_record_has_the_expected_words(recorded: dict[str, Any]) -> None:
    """An expectation that was changed since is asked again."""
    for name, one in recorded["programs"].items():
        text = (HERE / name).read_text(encoding="utf-8")
        if name.partition("/")[0] in {"unseen", "fresh", "second"}:
            continue  # SAYS is joined there
        assert f"COMPUTES = {one['expected']!r}".replace("'", '"') in text.replace("'", '"'), name
