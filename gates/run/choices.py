"""The case that a subject is asked, where it declares other choices than those of a preset.

A subject that declares `algorithm=("gspo",)` and `aggregation=("token-mean",)` computes a composition that no preset names. Its
cases are those of GSPO, with that aggregation, and its verdicts are of "gspo, token mean".
"""

from __future__ import annotations

from dataclasses import replace

from gates.model import Case, Gate, Op, Provided, UnsupportedError, Wire
from gates.run.plan import PlannedCase
from gates.worker.process import Hello


def chosen(planned: PlannedCase, hello: Hello) -> PlannedCase:
    """Return the planned case with the choices that the subject declares instead of the preset's.

    Raises:
        UnsupportedError: the choices do not go together, or the case is about the preset alone.
    """
    gate, case = planned.gate, planned.case
    provided = hello.provides.get(gate.main.name)
    for overridden in (overrides, _changed):  # the axes first: they decide which bounds there are
        if other := overridden(gate.main, case, provided):
            case = _composed(gate, case, other)
    return planned if case is planned.case else replace(planned, case=case)


def overrides(op: Op, case: Case, provided: Provided | None) -> dict[str, Wire]:
    """Return for each axis the declared choice, where neither the preset's own nor that of the case is declared."""
    preset, other = op.preset(case.conventions), {}
    for axis in op.axes:
        choices = provided.conventions.get(axis, ()) if provided else ()
        asked = case.conventions.get(axis, preset.get(axis))
        if choices and axis in preset and None not in choices and asked not in choices:
            other[axis] = choices[0]
    return other


def _changed(_op: Op, case: Case, provided: Provided | None) -> dict[str, Wire]:
    """Return the declared choice of each convention that the case can be asked with instead of its own."""
    declared = provided.conventions if provided else {}
    return {
        name: next(choice for choice in declared[name] if choice is not None)
        for name in case.changeable
        if name in case.conventions and any(choice is not None for choice in declared.get(name, ()))
        if case.conventions[name] not in declared[name]
    }


def _composed(gate: Gate, case: Case, other: dict[str, Wire]) -> Case:
    words = ", ".join(f"{axis}={word!r}" for axis, word in other.items())
    if case.compose is None:
        raise UnsupportedError(f"{gate.id} is asked of presets only; the subject declares {words}")
    try:
        return case.compose(other)
    except ValueError as error:
        raise UnsupportedError(f"the declared {words} cannot be asked: {error}") from None
