"""Draw findings about other libraries by a commit, for readers who try to refute them one by one.

    .venv/bin/python tools/draw_findings.py 6dc73234            # library and id of 30 findings, as they are in that commit
    .venv/bin/python tools/draw_findings.py HEAD --count 5

The order is that of SHA-256 of the commit's full name and the finding's id, so that nobody chooses: the commit is made first.
What the draws found is in results/conformance/draws.toml.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PEERS = "gates/subjects/peers/"


def git(*words: str, root: Path) -> str:
    """Return what git prints.

    Raises:
        SystemExit: git fails; with its sentence.
    """
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, cwd=root)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


def drawn(commit: str, ids: Sequence[str], count: int) -> list[str]:
    """Return the first `count` ids in the order of SHA-256 of `commit`, its full name, and the id."""
    return sorted(ids, key=lambda name: hashlib.sha256((commit + name).encode()).hexdigest())[:count]


def findings(commit: str, root: Path) -> dict[str, str]:
    """Return the library of each finding that a commit declares."""
    files = git("ls-tree", "--name-only", commit, PEERS, root=root).split()
    tables = {
        name: tomllib.loads(git("show", f"{commit}:{name}", root=root)) for name in files if name.endswith(".toml")
    }
    return {
        found["id"]: PurePosixPath(name).stem for name, table in tables.items() for found in table.get("finding", ())
    }


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Print the drawn findings, sorted by library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="a commit of this repository, such as HEAD")
    parser.add_argument("--count", type=int, default=30, help="how many findings (30)")
    options = parser.parse_args(words)
    if options.count < 1:
        parser.error("--count is at least 1")
    commit = git("rev-parse", "--verify", "--end-of-options", f"{options.commit}^{{commit}}", root=root).strip()
    library = findings(commit, root)
    print(f"{commit}: {min(options.count, len(library))} of {len(library)} findings")
    for name in sorted(drawn(commit, list(library), options.count), key=lambda name: (library[name], name)):
        print(f"{library[name]}  {name}")


if __name__ == "__main__":
    main()
