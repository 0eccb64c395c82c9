"""Long proofs of the judge itself, run by `make record` and recorded in results/judge/proofs.jsonl, which a test reads.

    .venv/bin/python tools/judge_proofs.py                # all: ten minutes
    .venv/bin/python tools/judge_proofs.py resume         # one of them: resume, small, cluster
    .venv/bin/python tools/judge_proofs.py resume 3       # a look at it: three kills, nothing is recorded

resume: `gates check` killed at 100 random moments; its short form, ten kills, is a test of `make test`.
small: every mistake of the counterexamples' table is made small; its short form, one mistake of each kind that runs a
model, is in `make test` too.
cluster: `--engine ray` on a local cluster of three nodes, one of them killed in the middle. Ray is an extra: where an
environment with it cannot be made, that is said and nothing is recorded. RAY_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

import proofs

RECORD = proofs.ROOT / "results" / "judge" / "proofs.jsonl"
KILLS = 100
RESUME = "tests/gates/run/test_resume.py::test_killed_at_random_moments"
KILLED = r"(\d+) kills, (\d+) whole runs of \d+ cells each judged once"
SMALL = "tests/gates/shrink/test_counterexamples_table.py"
PASSED = r"(\d+) passed in"
CLUSTER = "tests/gates/run/test_ray.py::TestCluster::test_a_lost_nodes_units_are_judged_again_and_none_counted_twice"
LOST = r'\{"cells": (\d+), "again": (\d+), "nodes": (\d+), "unsupported": (\d+)\}'
ENVIRONMENT = proofs.ROOT / ".gates" / "ray"
VERSION = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"


def resume(kills: int) -> dict[str, Any]:
    """SIGKILL at this many random moments of one run after another: every line valid, no cell lost or judged twice."""
    command = ["python", "-m", "pytest", "-s", RESUME]
    text = proofs.output([sys.executable, *command[1:]], KILLS=str(kills))
    killed, whole = map(int, proofs.numbers(KILLED, text))
    return {
        "proof": "resume",
        "command": f"KILLS={kills} " + " ".join(command),
        "found": {"kills": killed, "whole_runs": whole},
        "versions": {"rl-gates": importlib.metadata.version("rl-gates"), "python": platform.python_version()},
    }


def small(kills: int) -> dict[str, Any]:  # noqa: ARG001  called as `resume` is
    """Shrink the failing input of each listed mutation to a few numbers or tokens that still fail, and hold without it."""
    command = ["python", "-m", "pytest", SMALL]
    text = proofs.output([sys.executable, *command[1:]], LONG="1")
    (passed,) = map(int, proofs.numbers(PASSED, text))
    return {
        "proof": "small",
        "command": "LONG=1 " + " ".join(command),
        "found": {"mistakes": passed, "skipped": int("skipped" in text)},
        "versions": {"rl-gates": importlib.metadata.version("rl-gates"), "python": platform.python_version()},
    }


def cluster(python: str) -> dict[str, Any]:
    """A node is killed while it judges: each cell has one verdict, and some were sent again."""
    command = ["python", "-m", "pytest", "-s", CLUSTER]
    text = proofs.output([python, *command[1:]])
    cells, again, nodes, judged = map(int, proofs.numbers(LOST, text))
    names = ["ray", "numpy", "rl-gates"]
    versions = proofs.output([python, "-c", VERSION, *names]).split()
    return {
        "proof": "cluster",
        "command": " ".join(command),
        "found": {"cells": cells, "judged_once": judged, "sent_again": again, "nodes": nodes, "nodes_killed": 1},
        "versions": dict(zip(names, versions, strict=True)) | {"python": platform.python_version()},
    }


def interpreter() -> str:
    """Return an interpreter that has Ray, made if need be, or exit with 0 and the reason why there is none."""
    if named := os.environ.get("RAY_PYTHON"):
        return named
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        constraints = ["--constraint", "constraints.txt", "--requirement", "constraints-ray.txt"]
        for command in (
            [sys.executable, "-m", "venv", str(ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", *constraints],
        ):
            if python.exists():  # Ray alone is added to the packages that are here
                site = next(ENVIRONMENT.glob("lib/python*/site-packages"))
                (site / "gates.pth").write_text(f"{proofs.ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
            done = subprocess.run(command, cwd=proofs.ROOT, check=False, capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
                shutil.rmtree(ENVIRONMENT)
                print(f"cluster: not proved, for Ray cannot be installed: {reason}")
                sys.exit(0)
    return str(python)


def main() -> None:
    """Run what is asked for; record what was run in full."""
    wanted = sys.argv[1:2] or ["resume", "small", "cluster"]
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else KILLS
    shared = proofs.circumstances()  # of the tree that runs, whatever is committed meanwhile
    for name in wanted:
        prove = {"resume": resume, "small": small}.get(name)
        line = {**(prove(kills) if prove else cluster(interpreter())), **shared}
        if kills < KILLS:
            print(json.dumps(line["found"]))
        else:
            proofs.record(RECORD, line)


if __name__ == "__main__":
    main()
