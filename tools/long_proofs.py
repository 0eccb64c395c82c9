"""Long proofs of the judge and of the trainer, run by `make record`; a test reads what they recorded.

    .venv/bin/python tools/long_proofs.py                # all: half an hour
    .venv/bin/python tools/long_proofs.py resume         # one proof: resume, small, cluster or trainer
    .venv/bin/python tools/long_proofs.py resume 3       # three kills, not recorded

resume: `gates check` killed at 100 random moments; its short form, ten kills, is a test of `make test`.
small: every mistake of the table of counterexamples is shrunk; its short form, one mistake of each kind with a model, is
in `make test` too.
cluster: `--engine ray` on a local cluster of three nodes, one of them killed in the middle. Ray is an extra: if an
environment with it cannot be made, a message says so and nothing is recorded. RAY_PYTHON names an interpreter with Ray.
trainer: a training run killed at 100 random moments and compared byte for byte with an uninterrupted one; its short form is
a test of `make test`.
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
from collections.abc import Callable, Sequence
from typing import Any

import proofs

RESULTS = proofs.ROOT / "results"
KILLS = 100
RESUME = "tests/gates/run/test_resume.py::test_killed_at_random_moments"
KILLED = r"(\d+) kills, (\d+) whole runs of \d+ cells each judged once"
SMALL = "tests/gates/shrink/test_counterexamples_table.py"
PASSED = r"(\d+) passed in"
CLUSTER = "tests/gates/run/test_ray.py::TestCluster::test_a_lost_nodes_units_are_judged_again_and_none_counted_twice"
LOST = r'\{"cells": (\d+), "again": (\d+), "nodes": (\d+), "unsupported": (\d+)\}'
TRAINER = "tests/reference/trainer/test_checkpoint.py::test_killed_at_random_moments"
IDENTICAL = r"(\d+) kills, (\d+) of them behind an end that is identical, (\d+) ends"
ENVIRONMENT = proofs.ROOT / ".gates" / "ray"
VERSION = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Gates, of these packages and of Python."""
    return {name: importlib.metadata.version(name) for name in ("rl-gates", *packages)} | {
        "python": platform.python_version()
    }


def killed(test: str, kills: int, said: str, counted: Sequence[str], packages: Sequence[str] = ()) -> dict[str, Any]:
    """Run a test that kills one run after another at random moments, and return what it counted."""
    command = ["python", "-m", "pytest", "-s", test]
    text = proofs.output([sys.executable, *command[1:]], KILLS=str(kills))
    return {
        "proof": "resume",
        "command": f"KILLS={kills} " + " ".join(command),
        "found": dict(zip(counted, map(int, proofs.numbers(said, text)), strict=True)),
        "versions": versions(*packages),
    }


def resume(kills: int) -> dict[str, Any]:
    """Kill `gates check`: every line is valid, no case is lost or judged twice."""
    return killed(RESUME, kills, KILLED, ("kills", "whole_runs"))


def trainer(kills: int) -> dict[str, Any]:
    """Kill training runs: each is resumed to its end, whose bytes are those of an uninterrupted run."""
    packages = ("mlx", "mlx-lm", "numpy", "safetensors")
    return killed(TRAINER, kills, IDENTICAL, ("kills", "identical", "ends"), packages)


def small(kills: int) -> dict[str, Any]:  # noqa: ARG001  the signature of `resume`
    """Shrink the failing input of each listed mutation to a few numbers or tokens that fail only with the mutation."""
    command = ["python", "-m", "pytest", SMALL]
    text = proofs.output([sys.executable, *command[1:]], LONG="1")
    (passed,) = map(int, proofs.numbers(PASSED, text))
    return {
        "proof": "small",
        "command": "LONG=1 " + " ".join(command),
        "found": {"mistakes": passed, "skipped": int("skipped" in text)},
        "versions": versions(),
    }


def cluster(kills: int) -> dict[str, Any]:  # noqa: ARG001  the signature of `resume`
    """A node is killed while it judges: each case has one verdict, some after a retry."""
    python, command = interpreter(), ["python", "-m", "pytest", "-s", CLUSTER]
    text = proofs.output([python, *command[1:]])
    cells, again, nodes, judged = map(int, proofs.numbers(LOST, text))
    names = ["ray", "numpy", "rl-gates"]
    there = proofs.output([python, "-c", VERSION, *names]).split()
    return {
        "proof": "cluster",
        "command": " ".join(command),
        "found": {"cells": cells, "judged_once": judged, "sent_again": again, "nodes": nodes, "nodes_killed": 1},
        "versions": dict(zip(names, there, strict=True)) | {"python": platform.python_version()},
    }


def interpreter() -> str:
    """Return an interpreter with Ray, creating its environment if needed, or exit with 0 and the reason."""
    if named := os.environ.get("RAY_PYTHON"):
        return named
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        constraints = ["--constraint", "constraints.txt", "--requirement", "constraints-ray.txt"]
        for command in (
            [sys.executable, "-m", "venv", str(ENVIRONMENT)],
            [str(python), "-m", "pip", "install", "--quiet", *constraints],
        ):
            if python.exists():  # only Ray is added to the installed packages
                site = next(ENVIRONMENT.glob("lib/python*/site-packages"))
                (site / "gates.pth").write_text(f"{proofs.ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
            done = subprocess.run(command, cwd=proofs.ROOT, check=False, capture_output=True, text=True)
            if done.returncode:
                reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
                shutil.rmtree(ENVIRONMENT)
                print(f"cluster: not proved, for Ray cannot be installed: {reason}")
                sys.exit(0)
    return str(python)


PROOFS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {  # folder of results, and the proof
    "trainer": ("trainer", trainer),
    "resume": ("judge", resume),
    "small": ("judge", small),
    "cluster": ("judge", cluster),  # last: it exits where Ray cannot be installed
}


def main() -> None:
    """Run the requested proofs; record those that were run in full."""
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else KILLS
    shared = proofs.circumstances()  # before the run, since there may be commits meanwhile
    for name in sys.argv[1:2] or PROOFS:
        folder, prove = PROOFS[name]
        line = {**prove(kills), **shared}
        if kills < KILLS:
            print(json.dumps(line["found"]))
        else:
            proofs.record(RESULTS / folder / "proofs.jsonl", line)


if __name__ == "__main__":
    main()
