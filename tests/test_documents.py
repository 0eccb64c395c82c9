"""Every command in the `sh` blocks of a document runs, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import here

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LONG = {"make record", "make bench-full"}  # hours, and gigabytes of peers; their parts have their own tests
PROGRAMS = ("gates", "make", "pytest", "python", "lint-imports")


def blocks(document: str) -> list[tuple[str, str]]:
    """Return the document's fenced blocks as language and text."""
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


def commands(document: str) -> list[tuple[list[str], int]]:
    """Return the commands of its `sh` blocks with their exit codes: 0, or N with a comment "exit N"."""
    result = []
    for language, text in blocks(document):
        for line in re.sub(r"\\\n", "", text).splitlines() if language == "sh" else []:
            command, _, comment = line.partition(" #")
            code = re.search(r"exit (\d)", comment)
            if command.strip() and not command.startswith("#"):
                arguments = shlex.split(command)
                arguments[0] = arguments[0].removeprefix(".venv/bin/")
                arguments = arguments[2:] if arguments[:3] == ["python", "-m", "pytest"] else arguments
                result.append((arguments, int(code.group(1)) if code else 0))
    return result


def files(document: str) -> dict[str, str]:
    """Return the files that its commands use: blocks that start with a comment that is a path."""
    named = ((re.match(r"# ([\w./-]+\.\w+)\n", text), text) for language, text in blocks(document) if language != "sh")
    return {name.group(1): text for name, text in named if name}


TRAINING = "docs/training.md"  # a minute of training; the commands themselves are tested in tests/reference/trainer


@pytest.mark.parametrize(
    "document",
    [pytest.param(name, marks=pytest.mark.long if name == TRAINING else ()) for name in DOCUMENTS if commands(name)],
)
@pytest.mark.timeout(900)
def test_every_command_runs(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CI runs the `make` targets and all tests, whose commands collect here; others run next to the document's files."""
    ci = (ROOT / ".ci" / "run").read_text() + (ROOT / "Makefile").read_text().replace('"', "")  # targets that CI runs
    for name, text in (files("README.md") | files(document)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("examples", "results", "gates", "tests", "tools", "pyproject.toml"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )  # the programs of this environment
    for arguments, code in commands(document):
        assert arguments[0] in PROGRAMS, f"{document} shows {arguments[0]}, which no test runs; use a block of `text`"
        if arguments[0] == "make" or arguments == ["pytest", "-m", "fast"]:
            assert shlex.join(arguments) in LONG or shlex.join(arguments[:3]).removeprefix("pytest ") in ci, (
                f"{document}: CI does not run {arguments}"
            )
            continue
        expanded = [
            str(argument) for word in arguments for argument in (sorted(tmp_path.glob(word)) if "*" in word else [word])
        ]
        if arguments[0] == "gates":
            done = here(*expanded[1:], cwd=tmp_path)
        elif arguments[0] == "pytest" and "--gates" not in arguments:  # tests of Gates need the checkout
            done = run([sys.executable, "-m", *expanded, "--collect-only"], ROOT)
        else:
            done = run([sys.executable, "-m", *expanded] if arguments[0] == "pytest" else expanded, tmp_path)
        assert done.returncode == code, (
            f"{document}: {shlex.join(arguments)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, timeout=600)


def test_readme_fits_on_a_few_screens() -> None:
    """At most 120 lines; details are a link away."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
