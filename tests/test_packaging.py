"""The contents of the two wheels: rl-gates, which is pure Python, and rlkernels."""

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
KERNELS = ROOT / "rust" / "rlkernels-python"
FOLDERS = {"gates": ROOT / "gates", "gates_reference": ROOT / "reference" / "gates_reference"}  # by package

pytestmark = pytest.mark.slow


def built(command: list[str], project: Path, folder: Path) -> zipfile.ZipFile:
    """Return the one wheel that a command has built into a folder."""
    done = subprocess.run(
        [sys.executable, "-m", *command, str(folder)], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel of rl-gates from the working tree."""
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", str(ROOT), "--wheel-dir"]
    return built(command, ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel of rlkernels with the compiled release."""
    if shutil.which("cargo") is None:
        pytest.fail("cargo is missing: install Rust")
    command = ["maturin", "build", "--quiet", "--release", "--locked", "--compatibility", "off"]
    return built([*command, "--interpreter", sys.executable, "--out"], KERNELS, tmp_path_factory.mktemp("kernels"))


def names(wheel: zipfile.ZipFile) -> set[str]:
    """Return every file of the wheel."""
    return {name for name in wheel.namelist() if not name.endswith("/")}


def top(wheel: zipfile.ZipFile) -> set[str]:
    """Return the packages of the wheel; it has one folder of metadata beside them."""
    folders = {name.split("/")[0] for name in names(wheel)}
    assert sum(name.endswith(".dist-info") for name in folders) == 1
    return {name for name in folders if not name.endswith(".dist-info")}


def test_top_level_names(wheel: zipfile.ZipFile, kernels: zipfile.ZipFile) -> None:
    """No common name, such as `reference` or `tests`, is installed."""
    assert top(wheel) == {"gates", "gates_reference"}
    assert top(kernels) == {"rlkernels"}


def test_it_is_pure_python(wheel: zipfile.ZipFile) -> None:
    """One wheel for every system, which needs no compiler."""
    assert (wheel.filename or "").endswith("-py3-none-any.whl")
    assert {Path(name).suffix for name in names(wheel)}.isdisjoint({".so", ".pyd", ".dylib"})


def test_every_tracked_file_of_the_packages_is_there(wheel: zipfile.ZipFile) -> None:
    """Modules and data files (requirements of peers, schemas, templates) alike."""
    wanted = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - names(wheel) == set()


def test_pytest_finds_its_plugin(wheel: zipfile.ZipFile) -> None:
    """The wheel has the plugin's entry point."""
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/entry_points.txt"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())
    assert dict(entry_points["pytest11"]) == {"gates": "gates.pytest.plugin"}


def test_the_kernels_come_with_stub_and_marker(kernels: zipfile.ZipFile) -> None:
    """Type checkers find rlkernels typed; the extension is one abi3 library."""
    files = names(kernels)
    assert {"rlkernels/__init__.py", "rlkernels/__init__.pyi", "rlkernels/py.typed"} < files
    assert {"rlkernels/compat/__init__.py", "rlkernels/compat/rlox.py"} < files
    assert len([name for name in files if ".abi3." in name]) == 1
    assert "-cp311-abi3-" in (kernels.filename or "")


def test_the_wheels_have_the_licences(wheel: zipfile.ZipFile, kernels: zipfile.ZipFile) -> None:
    """The metadata names them (PEP 639) and both texts are there."""
    for each in (wheel, kernels):
        (name,) = (name for name in names(each) if name.endswith(".dist-info/METADATA"))
        assert "License-Expression: MIT OR Apache-2.0" in each.read(name).decode().splitlines()
        texts = {Path(file).name: each.read(file).decode() for file in names(each) if "/licenses/" in file}
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
