"""Documents tell the truth: every command in a block of `sh` runs, from top to bottom of its document."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LONG = {"make record", "make bench-full"}  # hours, and gigabytes of peers; their parts have tests of their own
PROGRAMS = ("gates", "make", "pytest", "python", "lint-imports")


def blocks(document: str) -> list[tuple[str, str]]:
    """The document's fenced blocks as language and text."""
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


def commands(document: str) -> list[tuple[list[str], int]]:
    """The commands of its `sh` blocks, each with its exit code: 0, or N where a comment says "exit N"."""
    found = []
    for language, text in blocks(document):
        for line in re.sub(r"\\\n", "", text).splitlines() if language == "sh" else []:
            command, _, comment = line.partition(" #")
            code = re.search(r"exit (\d)", comment)
            if command.strip() and not command.startswith("#"):
                words = shlex.split(command)
                words[0] = words[0].removeprefix(".venv/bin/")
                words = words[2:] if words[:3] == ["python", "-m", "pytest"] else words
                found.append((words, int(code.group(1)) if code else 0))
    return found


def files(document: str) -> dict[str, str]:
    """Its blocks that begin with a comment of a path alone, by that path: files that its commands use."""
    named = ((re.match(r"# ([\w./-]+\.\w+)\n", text), text) for language, text in blocks(document) if language != "sh")
    return {name.group(1): text for name, text in named if name}


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if commands(name)])
@pytest.mark.timeout(900)
def test_every_command_runs(document: str, tmp_path: Path) -> None:
    """CI runs what a document shows of `make`, and the fast tests; everything else is run here, beside the document's files."""
    ci = (ROOT / ".ci" / "run").read_text() + (ROOT / "Makefile").read_text()  # whose targets CI runs
    for name, text in (files("README.md") | files(document)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("examples", "results", "gates", "tests", "tools", "pyproject.toml"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words, code in commands(document):
        assert words[0] in PROGRAMS, f"{document} shows {words[0]}, which no test runs; use a block of `text`"
        if words[0] == "make" or words == ["pytest", "-m", "fast"]:
            assert shlex.join(words) in LONG or shlex.join(words[:3]).removeprefix("pytest ") in ci, (
                f"{document}: CI does not run {words}"
            )
            continue
        of_checkout = words[0] == "pytest" and "--gates" not in words  # our own tests need the checkout itself
        given = [str(found) for word in words for found in (sorted(tmp_path.glob(word)) if "*" in word else [word])]
        command = [sys.executable, "-m", *given] if words[0] in {"gates", "pytest"} else given
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT if of_checkout else tmp_path,
            env=environment,
            check=False,
            timeout=600,
        )
        assert done.returncode == code, f"{document}: {shlex.join(words)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_readme_fits_on_a_few_screens() -> None:
    """At most 150 lines; details are a link away."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
