"""Five paths of use, from an empty environment to a verdict, as their scripts in examples/paths say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PATHS = ROOT / "examples" / "paths"
VERDICTS = {  # the exit code of each script, and a line that it prints
    "torch_author.sh": (1, "computes: policy and reference exchanged"),
    "mlx_user.sh": (0, "IMPRECISE policy_loss[grpo]"),
    "cluster_user.sh": (1, "computes: completion mask shifted by one position"),
    "ci_engineer.sh": (0, "exit 0: all 1 correct"),
    "kernel_user.sh": (0, "3 ops judged · 3 correct"),
}
PREPARATION = re.compile(r"#|set -e|paths=|case ")  # lines of a script that are no commands of a user

LONG = {
    "mlx_user.sh"
}  # installs MLX too; test_readme.py judges a subject of MLX, and each other script installs the checkout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with pip alone, which the scripts of this process share."""
    folder = tmp_path_factory.mktemp("paths") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    return folder


@pytest.mark.parametrize(
    "script", [pytest.param(script, marks=pytest.mark.long if script in LONG else ()) for script in VERDICTS]
)
@pytest.mark.timeout(600)
def test_a_path_ends_with_its_verdict(script: str, environment: Path, tmp_path: Path) -> None:
    """The exit code and the verdict are those of the script."""
    if script == "torch_author.sh" and not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with torch and NumPy")
    if script == "kernel_user.sh" and not shutil.which("cargo"):
        pytest.skip("cargo, which builds the kernels, is not installed")
    code, line = VERDICTS[script]
    own = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    done = subprocess.run(
        ["sh", str(PATHS / script)],
        cwd=tmp_path,
        env=own
        | {
            "PATH": f"{environment / 'bin'}{os.pathsep}{own['PATH']}",
            "CARGO_TARGET_DIR": str(ROOT / "rust" / "target"),
            "COLUMNS": "160",
            "PIP_NO_COMPILE": "0",  # as --no-compile: pip writes the negated option; bytecode of what no script imports
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    assert line in " ".join(done.stdout.split())


@pytest.mark.parametrize("script", sorted(path.name for path in PATHS.glob("*.sh")))
def test_a_path_has_at_most_four_commands(script: str) -> None:
    """From install to verdict; and each script has a verdict above."""
    lines = (PATHS / script).read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line and not PREPARATION.match(line)]
    assert commands[0].startswith("pip install")
    assert len(commands) <= 4
    assert script in VERDICTS
