"""The stub accepts what runs: ordinary use of each kernel under mypy and pyright, and the stub itself."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ordinary_use
import pytest

import rlkernels

USE = Path(ordinary_use.__file__)
STUB = Path(rlkernels.__file__).with_suffix(".pyi")
WRONG = """import numpy as np
import rlkernels

x = np.zeros(4)
rlkernels.token_kl(x, x, estimator="k4")
rlkernels.token_kl(x, None, estimator="k1")
rlkernels.group_advantages("rewards", 2)
rlkernels.group_advantages(x, 2.0)
rlkernels.pack_sequences(["ab"], 4)
rlkernels.sample_tokens(x, 0.5, order="hf", temperature=1.0)
rlkernels.policy_loss(x, advantages=3.0, algorithm="grpo")
rlkernels.pack_sequences([1], 4, strategy="wrapped")
"""  # of the last eight lines each is a mistake of its own


def stub(folder: Path) -> Path:
    """Copy the stub where a checker takes it for the user's own file: it reports no errors in installed packages."""
    package = folder / "rlkernels"
    package.mkdir()
    return Path(shutil.copy(STUB, package / "__init__.pyi"))


def checked(folder: Path, *command: str) -> str:
    """Run a checker of types and return what it says; modules in the folder come first."""
    environment = {**os.environ, "MYPYPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", *command], check=False, capture_output=True, text=True, env=environment
    ).stdout


def pyright(folder: Path, *files: Path) -> list[tuple[str, int, str]]:
    """Return file, line and text of what pyright in its strictest mode reports as an error."""
    settings = {
        "typeCheckingMode": "strict",
        "reportMissingTypeStubs": False,
        "pythonVersion": "3.11",
        "include": [str(f) for f in files],
        "extraPaths": [str(folder)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ("--outputjson", "--level", "error", "--pythonpath", sys.executable, "--project", str(folder))
    report = json.loads(checked(folder, "basedpyright", *options))
    errors = [e for e in report["generalDiagnostics"] if e["severity"] == "error"]
    return [(Path(e["file"]).name, e["range"]["start"]["line"] + 1, e["message"]) for e in errors]


@pytest.mark.parametrize("use", ordinary_use.USES, ids=lambda use: use.__name__)
def test_ordinary_use_runs(use: Callable[[], None]) -> None:
    """What the checkers accept below."""
    use()


def mypy(folder: Path, *files: Path) -> str:
    """Return what `mypy --strict` says of the files."""
    options = ("--strict", "--config-file", "", "--cache-dir", str(folder / "cache"))
    return checked(folder, "mypy", *options, *map(str, files))


class TestMypy:
    """`mypy --strict`."""

    def test_accepts_ordinary_use_and_the_stub(self, tmp_path: Path) -> None:
        """Of each kernel."""
        said = mypy(tmp_path, USE, stub(tmp_path))
        assert said.startswith("Success"), said

    def test_refuses_mistakes(self, tmp_path: Path) -> None:
        """One in each line."""
        (tmp_path / "wrong.py").write_text(WRONG)
        said = mypy(tmp_path, tmp_path / "wrong.py")
        lines = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
        assert lines == set(range(5, 13)), said


@pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="older .venv: `make setup` installs basedpyright"
)
class TestPyright:
    """Basedpyright, which brings pyright and a node of its own as wheels."""

    def test_accepts_ordinary_use_and_the_stub(self, tmp_path: Path) -> None:
        """Of each kernel."""
        assert pyright(tmp_path, USE, stub(tmp_path)) == []

    def test_refuses_mistakes(self, tmp_path: Path) -> None:
        """One in each line."""
        (tmp_path / "wrong.py").write_text(WRONG)
        assert {line for _, line, _ in pyright(tmp_path, tmp_path / "wrong.py")} == set(range(5, 13))
