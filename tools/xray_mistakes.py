"""X-ray training scripts with a mistake, which were written without sight of the readings (tests/training).

Every script runs at five seeds with notes, and without at the first: notes add verdicts and change few readings. Fresh scripts run
without. The record keeps what was said when the scripts were first measured.

.venv/bin/python tools/xray_mistakes.py                       # all; a quarter of an hour
.venv/bin/python tools/xray_mistakes.py NAME...               # some, in the record too
.venv/bin/python tools/xray_mistakes.py NAME... --seeds 1     # not recorded
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import proofs

from gates.results.atomic_write import write_whole
from gates.subjects.peers import environments
from gates_reference import tiny

SCRIPTS = proofs.ROOT / "tests" / "training"
FAILS = re.compile(r"^\S+ (wrong|differs) ")
SEEDS = 5
RECORD = proofs.ROOT / "results" / "xray" / "mistakes.json"


def programs() -> dict[str, dict[str, Any]]:
    """Return the scripts by name: those without a mistake first."""
    listed = json.loads((SCRIPTS / "mistakes.json").read_text(encoding="utf-8"))
    unchanged = {
        f"{Path(each['file']).stem}{'-' + each['kind'] if each['arguments'] else ''}": each
        for each in listed["unchanged"]
    }
    fresh = [{**each, "silent": True} for each in listed["fresh"]]
    return unchanged | {Path(each["file"]).stem: each for each in [*listed["mistakes"], *fresh]}


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
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # side by side, threads wait for each other
        )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return {"exit": done.returncode, "error": done.stderr[-600:]}
    return {"exit": done.returncode, "updates": [_said(update) for update in document["updates"]]}


def _said(update: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        kind: [f"{each['name']}: {each['sentence']}" for each in update["readings"] if each["kind"] == kind]
        for kind in ("attention",)
    }
    verdicts = [
        " · ".join(filter(None, (f"{each['quantity']} {each['status']}", each["sentence"], each["computes"])))
        for each in update.get("verdicts", [])
    ]
    return {"unexplained": float(f"{update['unexplained']:.1g}"), **said, "verdicts": verdicts}


def runs(seeds: int) -> list[tuple[int, bool]]:
    """Return the seeds, each with notes or without."""
    return [(seed, notes) for seed in range(seeds) for notes in (False, True) if notes or not seed]


def measured(program: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Return the truth of a script, and what was said of it at each seed."""
    asked = [(seed, False) for seed in range(seeds)] if program.get("silent") else runs(seeds)
    said = [{"seed": seed, "notes": notes, **xray(program, seed, notes=notes)} for seed, notes in asked]
    return {"mistake": program.get("sentence"), "coefficient": program.get("coefficient"), "runs": said}


def main() -> int:
    """X-ray the scripts, and record what was said of each; return 1 if an unchanged one was complained of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="fewer are not recorded")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    every = programs()
    if unknown := sorted(set(chosen.names) - set(every)):
        raise SystemExit(f"unknown {', '.join(unknown)}; known are {', '.join(every)}")
    names = chosen.names or list(every)
    said: dict[str, Any] = {}
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for name, result in zip(names, pool.map(lambda name: measured(every[name], chosen.seeds), names), strict=True):
            said[name] = result
            print(name, *sorted({line for run in result["runs"] for line in complaints(run)}), sep="\n  ", flush=True)
    blamed = [name for name in names if "names" not in every[name] and any(map(complaints, said[name]["runs"]))]
    if chosen.seeds == SEEDS:
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
        scripts = {**(record.get("scripts", {}) if chosen.names else {}), **said}
        first = {name: result["runs"] for name, result in said.items() if "silent" in every[name]} | record.get(
            "first", {}
        )
        record = {"commit": proofs.revision(), "scripts": scripts, "first": first}
        write_whole(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return int(bool(blamed))


def complaints(run: Mapping[str, Any]) -> list[str]:
    """Return what calls for attention in a run, and the verdicts that fail."""
    if "error" in run:
        return [run["error"]]
    lines = [line for update in run["updates"] for line in update["attention"]]
    return [*lines, *(line for update in run["updates"] for line in update["verdicts"] if FAILS.search(line))]


if __name__ == "__main__":
    sys.exit(main())
