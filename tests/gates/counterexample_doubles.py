"""What the tests of counterexamples share: one that is made up, and the commands as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gates.registry import Registry
from gates.run.plan import Options, PlannedCase
from gates.shrink.file import Counterexample

SOME = Counterexample(
    gate="kl.k3.matches-definition",
    case="tiny-right-none-float64",
    seed=3,
    subject="numpy",
    entry="/nowhere/mine.py",
    kind="claim",
    reason="r",
    words="w",
    elements_before=9,
    elements_after=3,
    unit="numbers",
    finished=True,
    judged_beside=None,
    quick=True,
    tool="t",
    inputs={"policy": np.array([[0.0, np.nan]]), "beta": float("inf"), "rows": [np.arange(2), None], "on": True},
)


def run_test(file: Path, subject: str = "") -> int:
    """Run an emitted test as its reader would, and return the exit code."""
    environment = {**os.environ, "GATES_SUBJECT": subject, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half of its start
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    return subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, check=False).returncode


def changed(**values: Any) -> Counterexample:
    """Return the made-up counterexample with other values."""
    return replace(SOME, **values)


def mutated(registry: Registry, mutant: str, case: str) -> tuple[PlannedCase, Options]:
    """Return a case of the first gate that catches the mutant, and the options that run it on the mutated host."""
    found = registry.mutants[mutant]
    gate = registry.gates[found.caught_by[0]]
    job = PlannedCase(gate, registry.subjects[found.host], next(c for c in gate.cases if c.name == case))
    return job, Options(mutant={"target": found.target, "patch": found.patch}, quick=True)
