"""Ask a subject the designed calls of an op."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Never

import numpy as np

from gates.families.program import Inputs, Program, Sample
from gates.model import Case, Gate, Outcome, Recipe, Wire
from gates.run import inputs as drawing
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningTrial, Scratch
from gates.worker.process import Worker

LEAST = 4  # samples: with fewer, one mistake may look like another
CALL_S, ALL_S = 5.0, 20.0  # seconds for one call and for all
SEED = 20261123


class _CalledError(BaseException):
    """The check has made its first call. No `Exception`, so that no check catches it."""


def example(gate: Gate, case: Case, seed: int, op: str) -> Inputs | None:
    """Return the keywords with which a check calls an op first, or None if it calls another one before."""
    called: list[tuple[str, Mapping[str, Any]]] = []

    def note(name: str, given: Mapping[str, Wire | Recipe], *_: Any) -> Never:
        called.append((name, given))
        raise _CalledError

    with Scratch() as scratch:
        cached = OracleCache()
        trial = RunningTrial(drawing.inputs(gate, case, seed, cached), cached, gate, case, note, scratch)
        with contextlib.suppress(_CalledError, Exception):  # without a call there is no example
            for _ in gate.check(trial):
                pass
    return called[0][1] if called and called[0][0] == op else None


def ask(program: Program, worker: Worker, given: Inputs) -> list[Sample]:
    """Return what a subject computes for the designed inputs, without the calls that it does not answer."""
    found: list[Sample] = []
    deadline = time.monotonic() + ALL_S
    for inputs in program.inputs(given, np.random.default_rng(SEED)):
        left = deadline - time.monotonic()
        if left <= 0.0 or not worker.alive:
            break
        outcome = worker.call(program.op, inputs, limit_s=min(CALL_S, left))
        if outcome.kind == "value" and (sample := sampled(program, inputs, outcome)) is not None:
            found.append(sample)
    return found


def sampled(program: Program, inputs: Inputs, outcome: Outcome) -> Sample | None:
    """Return one answer as arrays, or None if it lacks an output or holds no numbers."""
    try:
        wanted = [name for name in program.outputs if name not in program.optional or name in outcome.value]
        got = {name: np.asarray(outcome.value[name], np.float64) for name in wanted}
    except (KeyError, TypeError, ValueError):
        return None
    return Sample(inputs, got)
