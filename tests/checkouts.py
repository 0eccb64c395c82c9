"""A copy of this checkout with an environment of its own, to which the diffs of a page are applied."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import rlkernels

ROOT = Path(__file__).resolve().parents[1]
DIFF = re.compile(r"^```diff\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^(?=--- )", re.MULTILINE)  # where the diff of a file begins


@dataclass(frozen=True, slots=True)
class Checkout:
    """The copy: its folder, and the interpreter that imports `gates` and `gates_reference` from there."""

    folder: Path
    python: Path

    def run(self, *words: str | Path, code: int = 0) -> str:
        """Run the copy's interpreter there, and return what it printed; another exit code fails the test."""
        command = [str(self.python), *map(str, words)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == code, (
            f"{words} ended with {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"
        )
        return done.stdout

    def apply(self, page: str) -> list[str]:
        """Apply the diffs that a page shows, and return the files that they change."""
        text = "".join(DIFF.findall((ROOT / page).read_text(encoding="utf-8")))
        assert text, f"{page} shows no diff"
        for diff in filter(None, FILE.split(text)):
            done = subprocess.run(
                ["git", "apply", "--recount", "-"],
                cwd=self.folder,
                input=diff,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{page}: a diff does not apply; write it again\n{done.stderr}{diff}"
        return re.findall(r"^\+\+\+ b/(.+)$", text, re.MULTILINE)

    def build_kernels(self, tested: str) -> None:
        """Run the crate's tests of this name, and let the copy import its own build of rlkernels: minutes."""
        target = ROOT / "rust" / "target" / "copies"  # kept, since the dependencies are the same every time
        cargo = {**os.environ, "CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
        for command in (
            ["test", "--package", "rlkernels", tested],
            ["build", "--release", "--package", "rlkernels-python"],
        ):
            done = subprocess.run(
                ["cargo", *command, "--quiet", "--locked"],
                cwd=self.folder / "rust",
                env=cargo,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"cargo {command}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
        (built,) = (
            path for path in (target / "release").glob("librlkernels_python.*") if path.suffix in {".so", ".dylib"}
        )
        (site,) = (self.folder / ".venv").glob("lib/python*/site-packages")
        shutil.copytree(Path(rlkernels.__file__).parent, site / "rlkernels")
        shutil.copy2(built, site / "rlkernels" / "rlkernels.abi3.so")


def copied(folder: Path) -> Checkout:
    """Return a copy of the tracked and the new files of this checkout, whose packages are those of this interpreter."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        if name.endswith(".py"):
            _copy_bytecode(name, folder)
    for command in (["init", "--quiet"], ["add", "--all"]):  # consistency tests ask git for the files
        subprocess.run(["git", *command], cwd=folder, check=True)
    return Checkout(folder, environment(folder / ".venv", folder, folder / "reference"))


def _copy_bytecode(name: str, folder: Path) -> None:
    """Copy the bytecode of a module, which Python uses while the module is unchanged: compiling all takes seconds."""
    bytecode = Path(cache_from_source(name))
    if (ROOT / bytecode).is_file():
        (folder / bytecode).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / bytecode, folder / bytecode)


def environment(folder: Path, *first: Path) -> Path:
    """Return the interpreter of a new environment: `first` on its path, then the packages of this interpreter."""
    venv.create(folder, symlinks=True, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    paths = [*first, sysconfig.get_path("purelib")]
    (site / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"
