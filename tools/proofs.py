"""Shared by the programs that record long proofs: a command's output, its numbers, and the file of proofs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gates.results.atomic_write import write_whole
from gates.results.machine import commit, cpu

ROOT = Path(__file__).parents[1]


def output(command: list[str], **environment: str) -> str:
    """Return the output of a command, which must succeed."""
    print("==", *command, flush=True)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}, must be 0")
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    """Return the groups of the only match of the pattern."""
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"no line matches {pattern!r} in:\n{text}")
    return [float(group) for group in match.groups()]


def revision() -> str:
    """Return the current commit, and whether tracked files differ from it."""
    name, dirty = commit()
    return f"{(name or 'none')[:8]}{' (dirty)' if dirty else ''}"


def circumstances() -> dict[str, Any]:
    """Return date, commit and processor."""
    return {"date": datetime.now(UTC).date().isoformat(), "commit": commit()[0], "cpu": cpu()[0], "features": cpu()[1]}


def record(path: Path, line: dict[str, Any]) -> None:
    """Replace the line of the same proof; the file is written atomically."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [old for old in lines if json.loads(old)["proof"] != line["proof"]]
    write_whole(path, (f"{text}\n" for text in sorted([*kept, json.dumps(line, sort_keys=True)])))
    print(f"{line['proof']}: recorded in {path.relative_to(ROOT)}")
