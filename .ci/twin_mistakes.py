"""Changes the NumPy twin at every operator and constant, one at a time, and tells which changes no gate notices.

    .venv/bin/python .ci/twin_mistakes.py                     # all of its modules, with all cases
    .venv/bin/python .ci/twin_mistakes.py numpy_preference    # one of them
    .venv/bin/python .ci/twin_mistakes.py numpy_loss --quick  # with the quick cases only

What survives is either no mistake (a term below every limit, a guard of what masks drop), or inputs that the gates do not
have: a reader tells which. It judges in this process, each mistake in a fork that ends after `LIMIT_S`.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from small_mistakes import Mistake, mistakes

import gates.subjects
from gates.model import Outcome, Status
from gates.registry import load
from gates.run import runner
from gates.run.calibration import runs_a_model
from gates.run.oracle_cache import OracleCache
from gates.run.runner import Options, PlannedCase
from gates.worker import worker
from gates.worker.process import Hello, Worker

FOLDER = Path(gates.subjects.__file__).parent
MODULES = (  # each after those that it imports
    "numpy_arguments",
    "numpy_terms",
    "numpy_logprobs",
    "numpy_ratio",
    "numpy_loss",
    "numpy_packing",
    "numpy_preference",
    "numpy_rewards",
    "numpy_sampling",
    "numpy",
)
LIMIT_S = 120  # for one mistake: all cells that run its function take seconds
ANSWERS = OracleCache(kept=6 << 30)  # what the oracle says of all cases: the forks share it

Operations = Mapping[str, Callable[..., Any]]


def operations(module: str = "", tree: ast.Module | None = None) -> Operations:
    """The twin's ops, built anew with a mistake in one of its modules."""
    for name in MODULES:
        made = types.ModuleType(f"gates.subjects.{name}")
        made.__file__ = str(FOLDER / f"{name}.py")
        sys.modules[made.__name__] = made
        setattr(gates.subjects, name, made)
        code = tree if tree is not None and name == module else ast.parse(Path(made.__file__).read_text())
        exec(compile(code, made.__file__, "exec"), made.__dict__)  # noqa: S102  our own source
    found: Operations = sys.modules["gates.subjects.numpy_baseline.subject"].OPS
    return found


def status(job: PlannedCase, ops: Operations, hello: Hello, options: Options) -> Status:
    """What the gate says of one cell."""

    def call(op: str, inputs: Mapping[str, Any], layout: Mapping[str, str], _kill_after_s: float | None) -> Outcome:
        given = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
        answer = worker._answer(ops.get(op), {"op": op, "layout": dict(layout), "inputs": given})  # noqa: SLF001
        if answer["kind"] != "value":
            return Outcome(answer["kind"], error=answer["error"])
        return Outcome("value", {k: v if isinstance(v, list) else np.asarray(v) for k, v in answer["value"].items()})

    return runner.judge(job, call, hello, options, ANSWERS).status


def functions_of(job: PlannedCase, ops: Operations, hello: Hello, options: Options) -> set[tuple[str, str]]:
    """The twin's modules and functions that a cell runs; nothing where the twin as it is does not pass."""
    seen: set[tuple[str, str]] = set()

    def note(frame: types.FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == FOLDER:
            seen.add((path.stem, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        passed = status(job, ops, hello, options) == "pass"
    finally:
        sys.setprofile(None)
    return seen if passed else set()


def noticed(mistake: Mistake, module: str, cells: Iterable[PlannedCase], hello: Hello, options: Options) -> bool:
    """Whether a cell fails with the mistake, or the twin cannot even be built with it; told by a fork."""
    child = os.fork()
    if child:
        _, ended = os.waitpid(child, 0)
        return ended != 0  # a signal too: it hung
    signal.alarm(LIMIT_S)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    try:
        ops = operations(module, mistake.tree)
        os._exit(int(any(status(job, ops, hello, options) == "fail" for job in cells)))
    except BaseException:  # noqa: BLE001  a module that does not load
        os._exit(2)


def interleaved(cells: list[PlannedCase]) -> list[PlannedCase]:
    """The first case of each gate, then the second of each: most mistakes are noticed by the first ones."""
    places: dict[str, int] = {}
    order = []
    for job in cells:
        places[job.gate.id] = places.get(job.gate.id, 0) + 1
        order.append((places[job.gate.id], len(order), job))
    return [job for _, _, job in sorted(order, key=lambda one: one[:2])]


def main() -> int:
    """0: what survives is for a reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", choices=[*MODULES, []], default=[])
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    subject = load().subjects["numpy"]
    served = Worker.start(subject, threads=1)
    hello = served.hello
    served.close()
    pure = [gate for gate in load().gates.values() if not runs_a_model(gate)]
    options = Options(quick=asked.quick)
    ops = operations()
    planned = runner.plan(pure, [subject], quick=asked.quick)
    ran = [(job, functions_of(job, ops, hello, options)) for job in planned]
    print(f"{sum(bool(functions) for _, functions in ran)} of {len(ran)} cells pass", flush=True)
    for module in asked.modules or MODULES:
        count = survived = 0
        for mistake in mistakes((FOLDER / f"{module}.py").read_text()):
            count += 1
            cells = interleaved([job for job, functions in ran if (module, mistake.function) in functions])
            if not noticed(mistake, module, cells, hello, options):
                survived += 1
                print(f"{module}:{mistake.line} {mistake.function}: {mistake.words} ({len(cells)} cells)", flush=True)
        print(f"{module}: {count} mistakes, {survived} that no gate notices", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
