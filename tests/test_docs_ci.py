"""docs/ci.md: settings, and the inputs of the action; test_documents.py runs its commands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.fast
def test_the_inputs_of_the_action_are_documented() -> None:
    """The table has exactly the inputs of the action's file."""
    action = yaml.safe_load((ROOT / ".github" / "actions" / "gates" / "action.yml").read_text(encoding="utf-8"))
    table = PAGE.partition("| input |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(action["inputs"])


@pytest.mark.fast
def test_the_hook_of_pre_commit_judges_the_files_of_a_bare_check() -> None:
    """It runs `gates check` on the changed subjects, and this repository installs with Python alone."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert (hook["id"], hook["entry"], hook["language"]) == ("gates", "gates check", "python")
    assert hook["pass_filenames"]
    assert hook["verbose"], "pre-commit shows nothing of a hook that passes, such as a subject that was skipped"
    assert re.search(hook["files"], "tests/mine_gates.py")
    assert not re.search(hook["files"], "tests/test_gates.pyi")
    assert "`id: gates`" in PAGE


@pytest.mark.fast
def test_every_step_has_a_row() -> None:
    """The table of costs names the steps of `.ci/run`, in their order."""
    steps = re.findall(r'^(?:.*\|\| )?step "([^"]+)"', (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    table = PAGE.partition("| step |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE) == steps


@pytest.mark.fast
@pytest.mark.parametrize("block", [block for kind, block in BLOCKS if kind == "toml"])
def test_settings_are_toml(block: str) -> None:
    """The examples of configuration are valid."""
    assert tomllib.loads(block)
