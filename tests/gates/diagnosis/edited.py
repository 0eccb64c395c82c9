"""Samples for tests of a diagnosis: what an edited definition, or the oracle, gives for the designed inputs of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.diagnosis.diagnose import diagnose
from gates.diagnosis.samples import SEED, example
from gates.diagnosis.search import Candidate, evaluate
from gates.families.program import Edit, Inputs, Program, Sample
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
        names = [name for name in program.outputs if name not in program.optional or hasattr(result, name)]
        found.append(Sample(inputs, {name: np.asarray(getattr(result, name, result)) for name in names}))
    return found


def of_edits(program: Program, calls: list[Inputs], edits: tuple[Edit, ...]) -> list[Sample]:
    """Return what a definition with edits gives, rounded to the dtype of the data."""
    chosen = Candidate(edits).choices(program.asked(calls[0]))
    return [Sample(inputs, rounded(inputs, evaluate(program, inputs, chosen))) for inputs in calls]


def rounded(inputs: Mapping[str, Any], found: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """Return values as the data's dtype holds them, or float32 for half types, in float64."""
    first = next(x for x in inputs.values() if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    dtype = np.float64 if first.dtype == np.float64 else np.float32
    return {name: value.astype(dtype).astype(np.float64) for name, (value, _) in found.items()}


def same(program: Program, calls: list[Inputs], first: tuple[Edit, ...], second: tuple[Edit, ...]) -> bool:
    """Whether two edited definitions are the same function of these inputs and of others, drawn anew, in float64."""
    asked = program.asked(calls[0])
    for inputs in (*calls, *program.inputs(calls[0], np.random.default_rng(1))):
        a, b = (evaluate(program, inputs, Candidate(edits).choices(asked)) for edits in (first, second))
        for name, (value, limit) in a.items():
            if value.shape != b[name][0].shape:
                return False
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


def misnamed(program: Program, calls: list[Inputs], every: int = 1, first: int = 0) -> list[str]:
    """Return a line for each edit, or for every n-th, that is not named by its own words or by those of an equal one."""
    edits = dict(by_sentence(program, calls))
    found = []
    for sentence, edit in list(edits.items())[first % every :: every]:
        named = diagnose(program, of_edits(program, calls, (edit,)))
        other = (
            () if named.kind == "as asked" else tuple(edits[word] for word in named.words.split(" · ") if word in edits)
        )
        if named.words != sentence and not (
            named.kind in {"as asked", "convention", "mistake"} and same(program, calls, (edit,), other)
        ):
            found.append(f"{sentence}: named {named.words or named.kind}")
    return found


def pairs_misnamed(program: Program, calls: list[Inputs], seed: int, count: int) -> list[str]:
    """Return a line for each of some pairs of edits that has a name of something else; one without a name is no error."""
    edits = dict(by_sentence(program, calls))
    chosen, rng, found = list(edits.items()), np.random.default_rng(seed), []
    named = 0
    for _ in range(count):
        (first, a), (second, b) = (chosen[i] for i in rng.choice(len(chosen), 2, replace=False))
        if a.changes.keys() & b.changes.keys():
            continue
        diagnosis = diagnose(program, of_edits(program, calls, (a, b)))
        named += diagnosis.kind in {"as asked", "convention", "mistake", "scaled"}
        if diagnosis.kind not in {"convention", "mistake", "as asked"}:
            continue
        other = tuple(edits[words] for words in diagnosis.words.split(" · ") if words in edits)
        right = diagnosis.words in {f"{first} · {second}", f"{second} · {first}"}
        if not right and not same(program, calls, (a, b), other):
            found.append(f"{first} · {second}: named {diagnosis.words}")
    assert named >= count // 3, "too few pairs have a name"
    return found


def changed(samples: Iterable[Sample], output: str, place: Callable[[Inputs], Any]) -> list[Sample]:
    """Return samples whose output is multiplied, in a place, by numbers that no edit gives."""
    found = []
    for sample in samples:
        value = sample.got[output]
        factor = 1.3 + 0.2 * np.sin(np.arange(value.size)).reshape(value.shape)
        found.append(
            Sample(sample.inputs, {**sample.got, output: np.where(place(sample.inputs), factor * value, value)})
        )
    return found
