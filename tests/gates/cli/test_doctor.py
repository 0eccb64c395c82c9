"""`gates doctor`: each part of a machine, and for each lack what mends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import RIGHT, here

from gates.run import health


def parts(folder: Path, *options: str) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the parts by name, and the exit code."""
    done = here("doctor", "--json", *options, cwd=folder)
    return {part["name"]: part for part in json.loads(done.stdout)}, done.returncode


def test_a_machine_that_can_judge(tmp_path: Path) -> None:
    """It names the files that `gates check` would judge, and the versions of the interpreter."""
    (tmp_path / "mine_gates.py").write_text(RIGHT)
    found, code = parts(tmp_path)
    assert code == 0
    assert found["subjects"]["says"] == "mine_gates.py"
    assert "numpy" in found["your Python"]["says"]
    assert found["rlkernels"]["state"] == "ok"
    assert all(part["remedy"] for part in found.values() if part["state"] != "ok")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("#!/bin/sh\nexit 3", "does not answer"),
        ('#!/bin/sh\necho \'{"python": "3.9.1", "versions": {}}\'', "must be 3.10 or newer"),
        ('#!/bin/sh\necho \'{"python": "3.12.1", "versions": {}}\'', "has no NumPy"),
        (None, "there is no such program"),
    ],
    ids=["fails", "old", "without NumPy", "missing"],
)
def test_an_interpreter_that_cannot_run_a_subject(tmp_path: Path, program: str | None, says: str) -> None:
    """It is broken, with what to do, and the exit code is 1."""
    path = tmp_path / "python"
    if program is not None:
        path.write_text(program)
        path.chmod(0o755)
    found, code = parts(tmp_path, "--python", str(path))
    assert code == 1
    assert found["your Python"]["state"] == "broken"
    assert says in found["your Python"]["says"]


def test_settings_that_are_refused(tmp_path: Path) -> None:
    """The message is that of `gates check`."""
    (tmp_path / "pyproject.toml").write_text("[tool.gates]\nsubject = 3\n")
    found, code = parts(tmp_path)
    assert code == 1
    assert "subject" in found["settings"]["says"]


def test_a_missing_library_names_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure: `gates check` runs without."""
    monkeypatch.setattr(health, "LIBRARIES", {"no-such-library": ("`--engine ray`", "pip install '.[ray]'")})
    done = here("doctor", cwd=tmp_path)
    assert "--  no-such-library" in done.stdout
    assert "pip install '.[ray]'" in done.stdout
    assert done.returncode == 0
