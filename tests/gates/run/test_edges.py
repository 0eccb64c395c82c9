"""Every edge of every input of the kernels' ops is looked at by some gate: what is misread there turns no verdict green.

A mask that loses its last column, a batch that loses its first row: mistakes of one index are made at the ends of arrays,
and inputs that hold nothing there would let them pass. The NumPy baseline is called with one edge of one input changed; some
quick case must notice.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from gates.model import Case, Gate, Outcome, SubjectFaultError
from gates.registry import load
from gates.run import inputs as drawing
from gates.run.oracle_cache import OracleCache
from gates.run.plan import runs_a_model
from gates.run.trial import RunningTrial, Scratch
from gates.subjects.numpy_baseline.subject import OPS

EDGES: Mapping[str, tuple[Any, ...]] = {
    "first row": (slice(0, 1),),
    "last row": (slice(-1, None),),
    "first column": (Ellipsis, slice(0, 1)),
    "last column": (Ellipsis, slice(-1, None)),
}
UNREAD = {  # edges that no definition reads
    (
        "preference_loss",
        "attention_mask",
        "last row",
    ): "of a rejected completion: ORPO's likelihood is that of the chosen"
}
Change = Callable[[Any], Any]
CHANGES: Mapping[str, tuple[Change, ...]] = {
    "b": (np.logical_not,),
    "i": (lambda x: x + 1, lambda x: np.where(x > 0, x - 1, x + 1)),
    "u": (lambda x: x + 1, lambda x: np.where(x > 0, x - 1, x + 1)),
    "f": (lambda x: x * 0.5 - 0.37, lambda x: x + 5.0, lambda x: -x, lambda x: np.full_like(x, 0.999)),
}
Inputs = Mapping[str, Any]
Edge = tuple[str, str, str]  # op, input, edge


def edges(op: str, inputs: Inputs) -> Iterator[Edge]:
    """The edges of a call's arrays of two elements or more; a vector has rows only."""
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and value.size > 1:
            yield from ((op, name, edge) for edge in EDGES if value.ndim > 1 or "row" in edge)


def judge(gate: Gate, case: Case, made: Inputs, answers: OracleCache, alter: Callable[[str, Inputs], Inputs]) -> bool:
    """Whether every claim of a gate holds for the NumPy baseline, called with altered inputs."""

    def call(op: str, inputs: Inputs, _layout: Mapping[str, str], _kill_after_s: float | None) -> Outcome:
        try:
            value = OPS[op](**alter(op, copy.deepcopy(dict(inputs))))
        except NotImplementedError as error:
            return Outcome("unsupported", error=str(error))
        except Exception as error:  # noqa: BLE001  as a worker does; an error also shows that the input was noticed
            return Outcome("raised", error=str(error))
        return Outcome(
            "value", {name: item if isinstance(item, list) else np.asarray(item) for name, item in value.items()}
        )

    with Scratch() as scratch:
        trial = RunningTrial(copy.deepcopy(made), answers, gate, case, call, scratch)
        try:
            return all(item.holds for item in gate.check(trial))
        except SubjectFaultError:
            return False


def quick_cells() -> Iterator[tuple[Gate, Case]]:
    """Gates whose ops the NumPy baseline has."""
    for gate in load().gates.values():
        if all(op.name in OPS for op in gate.ops) and not runs_a_model(gate):
            yield from ((gate, case) for case in gate.cases if case.quick)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of inputs that nobody meant
def test_no_edge_of_an_input_is_out_of_sight() -> None:
    """All of those that a quick case calls an op with."""
    answers = OracleCache()
    open_edges: dict[Edge, set[str]] = {}  # with the gates that did not notice
    noticed: set[Edge] = set()
    for gate, case in quick_cells():
        made = drawing.inputs(gate, case, 0, answers)
        here: set[Edge] = set()

        def plain(op: str, inputs: Inputs, here: set[Edge] = here) -> Inputs:
            here.update(edges(op, inputs))
            return inputs

        assert judge(gate, case, made, answers, plain), (gate.id, case.name)
        for edge in sorted(here - noticed):
            if any(not judge(gate, case, made, answers, altered) for altered in changes(edge)):
                noticed.add(edge)
                open_edges.pop(edge, None)
            else:
                open_edges.setdefault(edge, set()).add(gate.id)
    assert open_edges.keys() == UNREAD.keys()
    assert len(noticed) >= 200


def changes(edge: Edge) -> Iterator[Callable[[str, Inputs], Inputs]]:
    """The ways to misread an edge, one after the other."""
    target, name, where = edge

    def alter(op: str, inputs: Inputs, change: Change) -> Inputs:
        found = inputs.get(name)
        if op != target or not isinstance(found, np.ndarray) or edge not in set(edges(op, {name: found})):
            return inputs
        found[EDGES[where]] = change(found[EDGES[where]])
        return inputs

    for number in range(max(map(len, CHANGES.values()))):

        def one(op: str, inputs: Inputs, number: int = number) -> Inputs:
            kind = inputs[name].dtype.kind if isinstance(inputs.get(name), np.ndarray) else ""
            of_kind = CHANGES.get(kind, ())
            return alter(op, inputs, of_kind[number]) if number < len(of_kind) else inputs

        yield one
