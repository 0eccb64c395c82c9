"""Mutate the NumPy baseline at every operator and constant, one at a time; list the mutations that no gate catches.

    .venv/bin/python tools/mutate_numpy_baseline.py                     # all of its modules, with all cases
    .venv/bin/python tools/mutate_numpy_baseline.py preference    # one of them
    .venv/bin/python tools/mutate_numpy_baseline.py loss --quick  # with the quick cases only

A mutation that survives is either equivalent (a term below every limit, a guard of masked values), or shows inputs that the
gates lack; a reader decides which. Cases are judged in this process, each mutation in a fork that ends after `LIMIT_S`.
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
from small_mutations import Mutation, mutations

from gates.model import Outcome, Status
from gates.registry import load
from gates.run import judge as judging
from gates.run import plan as planning
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase, runs_a_model
from gates.subjects import numpy_baseline
from gates.worker import worker
from gates.worker.process import Hello, Worker

FOLDER = Path(numpy_baseline.__file__).parent
MODULES = (  # each after those that it imports
    "arguments",
    "terms",
    "logprobs",
    "ratio",
    "kl",
    "advantages",
    "loss",
    "packing",
    "preference",
    "sampling",
    "subject",
)
LIMIT_S = 120  # for one mutation: all cases that run its function take seconds
ANSWERS = OracleCache(kept=6 << 30)  # the oracle's results of all cases, shared by the forks

Operations = Mapping[str, Callable[..., Any]]


def operations(module: str = "", tree: ast.Module | None = None) -> Operations:
    """Build the baseline's ops anew, with a mutation in one of its modules."""
    for name in MODULES:
        made = types.ModuleType(f"{numpy_baseline.__name__}.{name}")
        made.__file__ = str(FOLDER / f"{name}.py")
        sys.modules[made.__name__] = made
        setattr(numpy_baseline, name, made)
        code = tree if tree is not None and name == module else ast.parse(Path(made.__file__).read_text())
        exec(compile(code, made.__file__, "exec"), made.__dict__)  # noqa: S102  our own source
    found: Operations = sys.modules[f"{numpy_baseline.__name__}.subject"].OPS
    return found


def status(job: PlannedCase, ops: Operations, hello: Hello, options: Options) -> Status:
    """Return the status that the gate gives to one case."""

    def call(op: str, inputs: Mapping[str, Any], layout: Mapping[str, str], _kill_after_s: float | None) -> Outcome:
        given = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
        answer = worker._answer(ops.get(op), {"op": op, "layout": dict(layout), "inputs": given})  # noqa: SLF001
        if answer["kind"] != "value":
            return Outcome(answer["kind"], error=answer["error"])
        return Outcome("value", {k: v if isinstance(v, list) else np.asarray(v) for k, v in answer["value"].items()})

    return judging.judge(job, call, hello, options, ANSWERS).status


def functions_of(job: PlannedCase, ops: Operations, hello: Hello, options: Options) -> set[tuple[str, str]]:
    """Return the baseline's modules and functions that a case runs; nothing where the unmutated baseline does not pass."""
    seen: set[tuple[str, str]] = set()

    def note(frame: types.FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent == FOLDER:
            seen.add((path.stem, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        passed = status(job, ops, hello, options) == "correct"
    finally:
        sys.setprofile(None)
    return seen if passed else set()


def caught(mutation: Mutation, module: str, cases: Iterable[PlannedCase], hello: Hello, options: Options) -> bool:
    """Judge in a fork whether a case fails with the mutation, or whether the baseline cannot be built with it."""
    child = os.fork()
    if child:
        _, ended = os.waitpid(child, 0)
        return ended != 0  # a signal too: it hung
    signal.alarm(LIMIT_S)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    try:
        ops = operations(module, mutation.tree)
        os._exit(int(any(status(job, ops, hello, options) == "wrong" for job in cases)))
    except BaseException:  # noqa: BLE001  a module that does not load
        os._exit(2)


def interleaved(cases: list[PlannedCase]) -> list[PlannedCase]:
    """The first case of each gate, then the second of each: the first ones catch most mutations."""
    places: dict[str, int] = {}
    order = []
    for job in cases:
        places[job.gate.id] = places.get(job.gate.id, 0) + 1
        order.append((places[job.gate.id], len(order), job))
    return [job for _, _, job in sorted(order, key=lambda one: one[:2])]


def main() -> int:
    """Return 0 whatever survives: a reader judges it."""
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
    planned = planning.plan(pure, [subject], quick=asked.quick)
    ran = [(job, functions_of(job, ops, hello, options)) for job in planned]
    print(f"{sum(bool(functions) for _, functions in ran)} of {len(ran)} cases pass", flush=True)
    for module in asked.modules or MODULES:
        count = survived = 0
        for mutation in mutations((FOLDER / f"{module}.py").read_text()):
            count += 1
            cases = interleaved([job for job, functions in ran if (module, mutation.function) in functions])
            if not caught(mutation, module, cases, hello, options):
                survived += 1
                print(
                    f"{module}:{mutation.line} {mutation.function}: {mutation.words} ({len(cases)} cases)", flush=True
                )
        print(f"{module}: {count} mutations, {survived} that no gate catches", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
