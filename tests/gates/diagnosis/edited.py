"""Samples for tests of a diagnosis: what an edited definition, or the oracle, gives for the designed inputs of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.diagnosis.program import Edit, Inputs, Program, Sample
from gates.diagnosis.samples import SEED, example
from gates.diagnosis.search import Candidate, evaluate
from gates.model import Case, Gate
from gates.registry import load
from gates.run.plan import case_seed


def gates_of(program: Program) -> list[Gate]:
    """Return the gates whose first op the program is a definition of."""
    gates = load().gates.values()
    return [gate for gate in gates if gate.ops[0].name == program.op and gate.level == "definition"]


def cases_of(gate: Gate) -> list[Case]:
    """Return the cases of a gate that ask for the definition on ordinary numbers."""
    return [case for case in gate.cases if case.level in {None, "definition"}]


def designed(program: Program, gate: Gate, case: Case) -> list[Inputs]:
    """Return the designed inputs of a case, or none where its check calls another op first."""
    given = example(gate, case, case_seed(gate, case, 0), program.op)
    return [] if given is None else list(program.inputs(given, np.random.default_rng(SEED)))


def of_oracle(program: Program, calls: Iterable[Inputs], oracle: Callable[..., Any]) -> list[Sample]:
    """Return what the oracle gives; its result has the outputs as attributes, or is the only output."""
    found = []
    for inputs in calls:
        result = oracle(**inputs)
        found.append(Sample(inputs, {name: np.asarray(getattr(result, name, result)) for name in program.outputs}))
    return found


def of_edits(program: Program, calls: list[Inputs], edits: tuple[Edit, ...]) -> list[Sample]:
    """Return what a definition with edits gives, rounded to the dtype of the data."""
    chosen = Candidate(edits).choices(program.asked(calls[0]))
    return [Sample(inputs, rounded(inputs, evaluate(program, inputs, chosen))) for inputs in calls]


def rounded(inputs: Mapping[str, Any], found: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return values as the data's dtype holds them, in float64."""
    first = next(x for x in inputs.values() if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    return {name: value.astype(first.dtype).astype(np.float64) for name, (value, _) in found.items()}


def same(program: Program, calls: list[Inputs], first: tuple[Edit, ...], second: tuple[Edit, ...]) -> bool:
    """Whether two edited definitions are the same function of these inputs and of others, drawn anew, in float64."""
    asked = program.asked(calls[0])
    for inputs in (*calls, *program.inputs(calls[0], np.random.default_rng(1))):
        a, b = (evaluate(program, inputs, Candidate(edits).choices(asked)) for edits in (first, second))
        for name, (value, limit) in a.items():
            certain = np.isfinite(limit) & np.isfinite(b[name][1])
            with np.errstate(invalid="ignore"):
                apart = np.abs(value - b[name][0])
            if np.any(apart[certain] > 1e-9 * np.maximum(np.abs(value[certain]), 1e-3)):
                return False
    return True


def by_sentence(program: Program, calls: list[Inputs]) -> Iterator[tuple[str, Edit]]:
    """Yield each edit by the words that name it."""
    for edit in program.edits(program.asked(calls[0])):
        yield edit.sentence, edit
