"""X-ray training scripts with a mistake, which were written without sight of the readings (tests/training).

.venv/bin/python tools/xray_mistakes.py                       # five seeds, with and without notes; an hour
.venv/bin/python tools/xray_mistakes.py NAME... --seeds 1     # some, not recorded
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import proofs

from gates.results.atomic_write import write_whole
from gates.subjects.peers import environments
from gates_reference import tiny

SCRIPTS = proofs.ROOT / "tests" / "training"
RECORD = proofs.ROOT / "results" / "xray" / "mistakes.json"


def programs() -> dict[str, dict[str, Any]]:
    """Return the scripts by name: those without a mistake first."""
    listed = json.loads((SCRIPTS / "mistakes.json").read_text(encoding="utf-8"))
    unchanged = {
        f"{Path(each['file']).stem}{'-' + each['kind'] if each['arguments'] else ''}": each
        for each in listed["unchanged"]
    }
    return unchanged | {Path(each["file"]).stem: each for each in listed["mistakes"]}


def xray(program: Mapping[str, Any], seed: int, *, notes: bool) -> dict[str, Any]:
    """Run a script under `gates xray`, and return what it said."""
    python = environments.environment(program["python"]).python
    with tempfile.TemporaryDirectory() as folder:
        script = [str(python), str(SCRIPTS / program["file"]), *program.get("arguments", [])]
        options = [
            "--model",
            str(tiny.build({})),
            "--seed",
            str(seed),
            "--out",
            folder,
            *(["--notes"] if notes else []),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "gates", "xray", "--json", "--", *script, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return {"exit": done.returncode, "error": done.stderr[-600:]}
    return {"exit": done.returncode, "updates": [_said(update) for update in document["updates"]]}


def _said(update: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        kind: [f"{each['name']}: {each['sentence']}" for each in update["readings"] if each["kind"] == kind]
        for kind in ("read", "attention", "cannot tell")
    }
    verdicts = [
        " · ".join(filter(None, (f"{each['quantity']} {each['status']}", each["sentence"], each["computes"])))
        for each in update.get("verdicts", [])
    ]
    return {"unexplained": update["unexplained"], **said, "verdicts": verdicts}


def main() -> int:
    """X-ray the scripts, and record what was said of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    every = programs()
    if unknown := sorted(set(chosen.names) - set(every)):
        raise SystemExit(f"unknown {', '.join(unknown)}; known are {', '.join(every)}")
    said: dict[str, Any] = {}
    for name in chosen.names or every:
        said[name] = [
            {"seed": seed, "notes": notes, **xray(every[name], seed, notes=notes)}
            for seed in range(chosen.seeds)
            for notes in (False, True)
        ]
        print(name, [run.get("exit") for run in said[name]], flush=True)
        if chosen.out:
            write_whole(chosen.out, json.dumps(said, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
