"""Call a subject with the designed inputs of an op."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from gates.families.program import Inputs, Program, Sample
from gates.model import Case, Gate, Outcome
from gates.run import inputs as drawing
from gates.worker.process import Worker

LEAST = 4  # samples: with fewer, mistakes cannot be told apart
CALL_S, ALL_S = 5.0, 20.0  # time limits of one call and of all calls, in seconds
SEED = 20261123
DRAWS = 6  # of a case


def example(gate: Gate, case: Case, seed: int, op: str) -> Inputs | None:
    """Return the keywords of an op that a case asks for, or None if its inputs are those of another op."""
    asked = gate.main
    drawn = {**drawing.inputs(gate, case, seed), **asked.fixed}
    if asked.name != op or not set(asked.inputs) - set(asked.optional) <= set(drawn):
        return None
    return {name: value for name, value in drawn.items() if name in asked.inputs}


def ask(program: Program, worker: Worker, example: Inputs) -> list[Sample]:
    """Return the subject's outputs for the inputs designed from an example, without unanswered calls."""
    return answers(program, worker, program.inputs(example, np.random.default_rng(SEED)))


def draws(gate: Gate, case: Case, seed: int, op: str) -> list[Inputs]:
    """Return several calls of a case itself, from this seed on: input too rare to be among the designed."""
    calls = (example(gate, case, seed + index, op) for index in range(DRAWS))
    return [call for call in calls if call is not None]


def answers(program: Program, worker: Worker, calls: Iterable[Inputs]) -> list[Sample]:
    """Return the subject's outputs for these calls, without unanswered ones."""
    samples: list[Sample] = []
    deadline = time.monotonic() + ALL_S
    for inputs in calls:
        left = deadline - time.monotonic()
        if left <= 0.0 or not worker.alive:
            break
        limit = min(CALL_S, left)
        outcome = worker.call(program.op, inputs, limit_s=limit, first_more_s=left - limit)
        if outcome.kind == "value" and (sample := sampled(program, inputs, outcome)) is not None:
            samples.append(sample)
    return samples


def sampled(program: Program, inputs: Inputs, outcome: Outcome) -> Sample | None:
    """Return one answer as arrays, or None if it lacks an output or is not numeric."""
    try:
        outputs = program.reads(inputs, outcome.value)
        names = [name for name in program.outputs if name not in program.optional or name in outputs]
        got = {name: np.asarray(outputs[name], np.float64) for name in names}
    except (KeyError, TypeError, ValueError):
        return None
    return Sample(inputs, got)
