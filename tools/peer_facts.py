"""Record what is known of each library without judging it: its default settings, and which rows of the matrix it names.

.venv/bin/python tools/peer_facts.py [PEER ...]    # writes results/conformance/facts.json

Settings are those that `resolve_config` answers where nothing is asked; the gate `trainer.config.in-force` compares them with
a real update. A row is named where a class, a function, a file or a word in quotes of the installed package has its words,
so that a cell says `absent` of nothing that the library has. A library that is not asked for keeps what is recorded.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gates.report.conformance.rows import ROWS  # noqa: E402
from gates.results.atomic_write import write_whole  # noqa: E402
from gates.results.conformance_records import ConformanceResults, read_conformance  # noqa: E402
from gates.results.library_facts import FILE, LibraryFacts, read_facts  # noqa: E402
from gates.subjects.peers import coverage, environments  # noqa: E402
from gates.subjects.peers.reproduce import VARIABLES  # noqa: E402

FOLDER = ROOT / "results" / "conformance"
OP = "resolve_config"
WORD = re.compile(r"[\w-]{2,40}")
PROGRAM = """
import json, runpy, sys
adapter, *trainers = sys.argv[1:]
call = runpy.run_path(adapter)["OPS"]["resolve_config"]
print(json.dumps({trainer: json.loads(str(call(trainer=trainer, settings={})["settings"])) for trainer in trainers}))
"""


def trainers(library: ConformanceResults) -> dict[str, dict[str, Any]]:
    """Return the settings in force of each trainer whose configuration was judged, as the adapter answers."""
    peer = library.header.peer
    ops = [grade.op for grade in library.grades if grade.subject == peer and grade.op.startswith(f"{OP}[")]
    names = sorted(op.partition("[")[2].rstrip("]") for op in ops)
    if not names:
        return {}
    done = subprocess.run(
        [str(environments.environment(peer).python), "-", str(environments.peers()[peer].subject), *names],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **VARIABLES},
    )
    if done.returncode:
        raise SystemExit(f"{peer}: {OP} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def identifiers(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that a package defines or quotes, with its file and line, files in the order of their paths."""
    for file in sorted(folder.rglob("*.py*")):
        if file.suffix not in {".py", ".pyi"} or "tests" in file.parts:
            continue
        path = file.relative_to(folder.parent)
        yield file.stem, f"{path}:1"
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield node.name, f"{path}:{node.lineno}"
                case ast.arg() | ast.keyword(arg=str()):
                    yield str(node.arg), f"{path}:{node.lineno}"
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                    yield name, f"{path}:{node.lineno}"
                case ast.Constant(value=str() as text) if WORD.fullmatch(text):
                    yield text, f"{path}:{node.lineno}"


def named(peer: str) -> dict[str, str]:
    """Return the first place of a package that has each row's name."""
    folder = coverage.site_packages(environments.environment(peer)) / environments.peers()[peer].import_name
    found: dict[str, str] = {}
    for name, place in identifiers(folder):
        for row in ROWS:
            if row.title not in found and row.names(name):
                found[row.title] = place
    return {row.title: found[row.title] for row in ROWS if row.title in found}


def main(peers: list[str]) -> None:
    """Look at the libraries that are named, or at all."""
    known = dict(read_facts(FOLDER))
    for path in sorted(FOLDER.glob("*.jsonl")):
        library = read_conformance(path)
        peer = library.header.peer
        if not peers or peer in peers:
            known[peer] = LibraryFacts(version=library.header.version, trainers=trainers(library), named=named(peer))
            print(f"{peer}: {len(known[peer].trainers)} trainers, {len(known[peer].named)} rows named")
    facts = {peer: known[peer].model_dump() for peer in sorted(known)}
    write_whole(FOLDER / FILE, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
