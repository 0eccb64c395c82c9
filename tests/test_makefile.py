"""The Makefile documents itself and reports missing tools in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEED_CARGO = ("check", "test", "lint", "bench", "bench-full", "prove", "calibrate", "generate", "report", "record")
TARGETS = (*NEED_CARGO, "help")
TOOLS = ("sh", "find", "awk", "env", "touch", "make")


def make(checkout: Path, programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make with nothing but `programs` on the PATH."""
    environment = {"PATH": str(programs), "HOME": str(checkout)}
    command = [str(programs / "make"), "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the files that set-up needs, without an environment."""
    folder = tmp_path / "checkout"
    (folder / "rust").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tools", folder / "tools")
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Make a PATH with basic tools, a cargo and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        path = shutil.which(tool)
        assert path is not None, f"{tool} is missing"
        (folder / tool).symlink_to(path)
    stub(folder, "cargo", "exit 0")
    return folder


def stub(folder: Path, name: str, body: str) -> None:
    """Write a program with this body."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


@pytest.mark.fast
def test_help_lists_every_target(checkout: Path, programs: Path) -> None:
    """`make help` and plain `make` show each target with a sentence."""
    for arguments in (["help"], []):
        lines = make(checkout, programs, *arguments).stdout.splitlines()
        assert sorted(line.split()[1] for line in lines) == sorted(TARGETS)
        assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("target", NEED_CARGO)
def test_missing_cargo_is_reported(checkout: Path, programs: Path, target: str) -> None:
    """Without cargo every target that needs it exits with 2."""
    (programs / "cargo").unlink()
    done = make(checkout, programs, target)
    assert done.returncode == 2
    assert "cargo is missing: install Rust 1.89 or newer" in done.stderr


@pytest.mark.parametrize(
    "pythons",
    [
        pytest.param({}, id="none"),
        pytest.param({"python3": "exit 1"}, id="too-old-or-without-venv"),
        pytest.param({"python3.13": "exit 127", "python3.12": "exit 127"}, id="shims-of-versions-not-installed"),
    ],
)
def test_without_a_usable_python_the_message_says_so(checkout: Path, programs: Path, pythons: dict[str, str]) -> None:
    """A Python that does not run, is too old or cannot make environments is skipped."""
    for name, body in pythons.items():
        stub(programs, name, body)
    done = make(checkout, programs, "check")
    assert done.returncode == 2
    assert "Install Python 3.11 or newer with its venv module" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_broken_python_is_skipped(programs: Path) -> None:
    """The first working one is used, even if newer names come first."""
    stub(programs, "python3.13", "exit 127")
    stub(programs, "python3.12", "echo /somewhere/python3.12")
    stub(programs, "python3", "echo /somewhere/python3")
    command = [str(ROOT / "tools" / "find-python")]
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "/somewhere/python3.12\n")


def test_setup_runs_once() -> None:
    """In a set-up checkout nothing is left to do."""
    if not (ROOT / ".venv" / "extension.stamp").exists():
        pytest.skip("this checkout was not set up by make")
    done = subprocess.run(["make", "--question", "setup"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "sources are newer than the built extension: run `make setup`"


@pytest.mark.fast
def test_no_registry_host_is_named() -> None:
    """The machine decides where packages come from: no set-up file names an address or a mirror."""
    files = [ROOT / name for name in ("Makefile", "constraints.txt", "pyproject.toml", "asv.conf.json")]
    files += [ROOT / ".ci" / "run", *(ROOT / "tools").iterdir()]
    files += [*(ROOT / ".github").rglob("*.yml"), *(ROOT / "rust").glob("**/Cargo.toml")]
    for file in files:
        if "target" in file.parts or not file.is_file():
            continue
        addresses = re.findall(r"https?://\S+|--(?:extra-)?index-url|--find-links", file.read_text(encoding="utf-8"))
        assert addresses == [], file


@pytest.mark.fast
def test_constraints_pin_every_package() -> None:
    """One exact version per line, markers aside."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [
        line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[^ =]+( ; [a-z_]+ == \"[a-z]+\")?", line)
    ] == []
    assert len({line.split("==")[0].lower() for line in pins}) == len(pins) > 30


@pytest.mark.fast
def test_shell_scripts_can_be_started() -> None:
    """`.ci/run`, the only file in its folder, and the scripts in tools/ are executable and valid bash."""
    assert [file.name for file in (ROOT / ".ci").iterdir()] == ["run"]
    scripts = [file for file in (ROOT / "tools").iterdir() if file.is_file() and not file.suffix]
    assert {"find-python", "fuzz", "neon"} <= {file.name for file in scripts}
    for file in (ROOT / ".ci" / "run", *scripts):
        assert os.access(file, os.X_OK), file
        assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0, file
