"""Call a subject with the designed inputs of an op."""

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

LEAST = 4  # samples: with fewer, mistakes cannot be told apart
CALL_S, ALL_S = 5.0, 20.0  # time limits of one call and of all calls, in seconds
SEED = 20261123


class _CalledError(BaseException):
    """The check has made its first call. A BaseException, so that no check catches it."""


def example(gate: Gate, case: Case, seed: int, op: str) -> Inputs | None:
    """Return the arguments of a check's first call, or None if that calls another op."""
    called: list[tuple[str, Mapping[str, Any]]] = []

    def note(name: str, arguments: Mapping[str, Wire | Recipe], *_: Any) -> Never:
        called.append((name, arguments))
        raise _CalledError

    with Scratch() as scratch:
        cached = OracleCache()
        trial = RunningTrial(drawing.inputs(gate, case, seed, cached), cached, gate, case, note, scratch)
        with contextlib.suppress(_CalledError, Exception):  # without a call there is no example
            for _ in gate.check(trial):
                pass
    return called[0][1] if called and called[0][0] == op else None


def ask(program: Program, worker: Worker, example: Inputs) -> list[Sample]:
    """Return the subject's outputs for the inputs designed from an example, without unanswered calls."""
    samples: list[Sample] = []
    deadline = time.monotonic() + ALL_S
    for inputs in program.inputs(example, np.random.default_rng(SEED)):
        left = deadline - time.monotonic()
        if left <= 0.0 or not worker.alive:
            break
        outcome = worker.call(program.op, inputs, limit_s=min(CALL_S, left))
        if outcome.kind == "value" and (sample := sampled(program, inputs, outcome)) is not None:
            samples.append(sample)
    return samples


def sampled(program: Program, inputs: Inputs, outcome: Outcome) -> Sample | None:
    """Return one answer as arrays, or None if it lacks an output or is not numeric."""
    try:
        names = [name for name in program.outputs if name not in program.optional or name in outcome.value]
        got = {name: np.asarray(outcome.value[name], np.float64) for name in names}
    except (KeyError, TypeError, ValueError):
        return None
    return Sample(inputs, got)
