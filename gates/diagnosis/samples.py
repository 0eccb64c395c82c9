"""Ask a subject the designed calls of an op."""

from __future__ import annotations

import time

import numpy as np

from gates.families.program import Inputs, Program, Sample
from gates.model import Case, Gate, Outcome
from gates.run import inputs as drawing
from gates.worker.process import Worker

LEAST = 4  # samples: with fewer, one mistake may look like another
CALL_S, ALL_S = 5.0, 20.0  # seconds for one call and for all
SEED = 20261123


def example(gate: Gate, case: Case, seed: int, op: str) -> Inputs | None:
    """Return the keywords of an op that a case asks for, or None if its inputs are those of another op."""
    asked = gate.main
    drawn = {**drawing.inputs(gate, case, seed), **asked.fixed}
    if asked.name != op or not set(asked.inputs) - set(asked.optional) <= set(drawn):
        return None
    return {name: value for name, value in drawn.items() if name in asked.inputs}


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
