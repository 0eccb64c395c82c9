"""The contents of the wheel."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("gates", "reference")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel of the working tree with the compiled release."""
    if shutil.which("cargo") is None:
        pytest.fail("cargo is missing: install Rust")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "maturin", "build", "--quiet", "--release", "--locked", "--out", str(folder)]
    command += ["--compatibility", "off", "--interpreter", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("rl_gates-*.whl")
    return zipfile.ZipFile(file)


def names(wheel: zipfile.ZipFile) -> set[str]:
    """Return every file of the wheel."""
    return {name for name in wheel.namelist() if not name.endswith("/")}


def test_top_level_names(wheel: zipfile.ZipFile) -> None:
    """Exactly three packages: maturin silently omits a misspelt one, and must not add tests or benches."""
    top = {name.split("/")[0] for name in names(wheel)}
    assert {name for name in top if not name.endswith(".dist-info")} == {"gates", "reference", "rlkernels"}
    assert sum(name.endswith(".dist-info") for name in top) == 1


def test_every_tracked_file_of_the_packages_is_there(wheel: zipfile.ZipFile) -> None:
    """Modules and data files (requirements of peers, schemas, templates) alike."""
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - names(wheel) == set()


def test_pytest_finds_its_plugin(wheel: zipfile.ZipFile) -> None:
    """The wheel has the plugin's entry point."""
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/entry_points.txt"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())
    assert dict(entry_points["pytest11"]) == {"gates": "gates.pytest.plugin"}


def test_the_kernels_come_with_stub_and_marker(wheel: zipfile.ZipFile) -> None:
    """Type checkers find rlkernels typed; the extension is one abi3 library."""
    files = {name for name in names(wheel) if name.startswith("rlkernels/")}
    assert {"rlkernels/__init__.py", "rlkernels/__init__.pyi", "rlkernels/py.typed"} < files
    assert {"rlkernels/compat/__init__.py", "rlkernels/compat/rlox.py"} < files
    assert len([name for name in files if ".abi3." in name]) == 1
    assert "-cp311-abi3-" in (wheel.filename or "")


def test_the_wheel_has_the_licences(wheel: zipfile.ZipFile) -> None:
    """The metadata names them (PEP 639) and both texts are there."""
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/METADATA"))
    assert "License-Expression: MIT OR Apache-2.0" in wheel.read(name).decode().splitlines()
    texts = {Path(file).name: wheel.read(file).decode() for file in names(wheel) if "/licenses/" in file}
    assert texts == {file: (ROOT / file).read_text() for file in ("LICENSE-MIT", "LICENSE-APACHE")}


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    """`gates` is installed as a command."""
    (file,) = (name for name in names(wheel) if name.endswith("entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(wheel.read(file).decode())
    assert dict(points["console_scripts"]) == {"gates": "gates.cli:main"}


def test_versions_agree() -> None:
    """pyproject.toml and Cargo.toml say the same version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    workspace = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert project == workspace
