"""Judge the newest release of a peer, and say what it changed against the record in results/conformance.

    .venv/bin/python tools/newest_peer.py trl --out report      # report/trl.jsonl and report/trl.md

The library's own pin is changed for the run and put back afterwards; what it depends on keeps its pins. That a record no longer
holds for a newer release is expected, and part of the report.

Exit code: 0 no newer release, or one that changed nothing · 1 it changed something, or it cannot be installed or judged.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from gates.results.atomic_write import write_whole  # noqa: E402 - after the path
from gates.subjects.peers import environments  # noqa: E402
from gates.subjects.peers.discovery import Peer  # noqa: E402

GATES = (sys.executable, "-m", "gates", "peers")
INDEX = (sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check")
SHOWN = 40  # last lines of a command that failed


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code of a command, and what it printed."""

    code: int
    printed: str


Run = Callable[[Sequence[str]], Ran]


def run(command: Sequence[str]) -> Ran:
    """Run a command in the checkout."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return Ran(done.returncode, done.stdout + done.stderr)


def newest(distribution: str, run: Run) -> str:
    """Return the newest release on the package index.

    Raises:
        SystemExit: pip names none.
    """
    ran = run([*INDEX, distribution])
    found = re.match(rf"{re.escape(distribution)} \((\S+)\)", ran.printed, re.IGNORECASE)
    if ran.code or found is None:
        raise SystemExit(f"the package index names no release of {distribution}: {ran.printed.strip()[-300:]}")
    return found[1]


def pin(peer: Peer, version: str) -> tuple[Path, str]:
    """Return the requirements file that pins a library, and its text with another version.

    Raises:
        SystemExit: no file pins it.
    """
    line = re.compile(rf"^({re.escape(peer.distribution)}==)[^\s;]+", re.MULTILINE | re.IGNORECASE)
    files = (peer.requirements, *sorted((peer.requirements.parent / "base").glob("*.txt")))
    for file in files:
        text, count = line.subn(rf"\g<1>{version}", file.read_text(encoding="utf-8"))
        if count:
            return file, text
    raise SystemExit(f"no file pins {peer.distribution}; looked in {', '.join(file.name for file in files)}")


def judged(peer: Peer, version: str, out: Path, run: Run) -> tuple[int, str]:
    """Judge a release of a library with its pin changed; return the exit code and the report in markdown."""
    file, text = pin(peer, version)
    record = ROOT / "results" / "conformance" / f"{peer.name}.jsonl"
    old, kept = file.read_text(encoding="utf-8"), out / f"{peer.name}.before.jsonl"
    shutil.copy(record, kept)
    title = f"# {peer.name} {environments.pinned(peer)} → {version}\n\n"
    try:
        write_whole(file, text)
        for command, failed in (
            ("sync", (1, 2, 3, 4)),
            ("check", (2, 3, 4)),
        ):  # 1: the record does not hold, as expected
            ran = run([*GATES, command, peer.name, *(["--record"] if command == "check" else [])])
            if ran.code in failed:
                last = "\n".join(ran.printed.splitlines()[-SHOWN:])
                return 1, f"{title}`gates peers {command} {peer.name}` ended with {ran.code}:\n\n{_fenced(last)}"
        shutil.copy(record, out / f"{peer.name}.jsonl")
        changes = run([*GATES, "diff", str(kept), str(out / f"{peer.name}.jsonl")])
        return (
            changes.code,
            f"{title}{_fenced(changes.printed)}\nThe check, whose `!` lines no longer hold:\n\n{_fenced(ran.printed)}",
        )
    finally:
        write_whole(file, old)
        shutil.copy(kept, record)


def _fenced(text: str) -> str:
    return f"```text\n{text.replace('```', '` ` `').strip()}\n```\n"


def main(arguments: Sequence[str] | None = None, run: Run = run) -> int:
    """Report on one peer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[name for name, peer in environments.peers().items() if peer.subject])
    parser.add_argument("--out", type=Path, default=Path("report"), help="a folder; default: report")
    asked = parser.parse_args(arguments)
    peer = environments.peers()[asked.name]
    version = newest(peer.distribution, run)
    if version == environments.pinned(peer):
        print(f"{peer.name}: {version} is the newest")
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    code, text = judged(peer, version, asked.out.resolve(), run)
    (asked.out / f"{peer.name}.md").write_text(text, encoding="utf-8")
    print(text)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
