"""Compose cases for a subject whose declared choices differ from those of a preset.

A subject that declares `algorithm=("gspo",)` and `aggregation=("token-mean",)` computes a composition without a preset. It
is asked the cases of GSPO with that aggregation, and graded as "gspo, token mean".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from gates.model import Case, Gate, Op, UnsupportedError, Wire
from gates.provided import Provided
from gates.run.plan import PlannedCase
from gates.worker.process import Hello


def chosen(planned: PlannedCase, hello: Hello) -> PlannedCase:
    """Return the planned case with the subject's declared choices instead of the preset's.

    Raises:
        UnsupportedError: the choices are not a valid combination, or the case exists for the preset only.
    """
    gate, case = planned.gate, planned.case
    provided = hello.provides.get(gate.main.name)
    if axes := overrides(gate.main, case, provided):  # they decide which bounds there are
        case = _composed(gate, case, axes)
    if (other := _changed(case, provided)) and case.compose is not None:
        with suppress(ValueError):  # what does not go together is lacking, as it would be without a composition
            case = case.compose(other)
    return planned if case is planned.case else replace(planned, case=case)


def overrides(op: Op, case: Case, provided: Provided | None) -> dict[str, Wire]:
    """Return the declared choice of each axis on which the choice of the case, or of the preset, is not declared."""
    preset, declared = op.preset(case.conventions), {}
    for axis in op.axes:
        choices = provided.conventions.get(axis, ()) if provided else ()
        asked = case.conventions.get(axis, preset.get(axis))
        if choices and axis in preset and None not in choices and asked not in choices:
            declared[axis] = choices[0]
    return declared


def _changed(case: Case, provided: Provided | None) -> dict[str, Wire]:
    """Return the declared choice of each convention that the case can be asked with instead of its own."""
    declared = provided.conventions if provided else {}
    return {
        name: next(choice for choice in declared[name] if choice is not None)
        for name in case.changeable
        if name in case.conventions and any(choice is not None for choice in declared.get(name, ()))
        if case.conventions[name] not in declared[name]
    }


def _composed(gate: Gate, case: Case, choices: dict[str, Wire]) -> Case:
    declared = ", ".join(f"{axis}={word!r}" for axis, word in choices.items())
    if case.compose is None:
        raise UnsupportedError(f"{gate.id} is asked of presets only; the subject declares {declared}")
    try:
        return case.compose(choices)
    except ValueError as error:
        raise UnsupportedError(f"the declared {declared} cannot be asked: {error}") from None
