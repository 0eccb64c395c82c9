"""Compose cases for a subject whose declared choices differ from those of a preset.

A subject that declares `algorithm=("gspo",)` and `aggregation=("token-mean",)` computes a composition without a preset. It
is asked the cases of GSPO with that aggregation, and graded as "gspo, token mean".
"""

from __future__ import annotations

from dataclasses import replace

from gates.model import Case, Gate, Op, Provided, UnsupportedError, Wire
from gates.run.plan import PlannedCase
from gates.worker.process import Hello


def chosen(planned: PlannedCase, hello: Hello) -> PlannedCase:
    """Return the planned case with the subject's declared choices instead of the preset's.

    Raises:
        UnsupportedError: the choices are not a valid combination, or the case exists for the preset only.
    """
    op = planned.gate.main
    choices = overrides(op, planned.case, hello.provides.get(op.name))
    return replace(planned, case=_composed(planned.gate, planned.case, choices)) if choices else planned


def overrides(op: Op, case: Case, provided: Provided | None) -> dict[str, Wire]:
    """Return the declared choice of each axis on which the choice of the case, or of the preset, is not declared."""
    preset, declared = op.preset(case.conventions), {}
    for axis in op.axes:
        choices = provided.conventions.get(axis, ()) if provided else ()
        asked = case.conventions.get(axis, preset.get(axis))
        if choices and axis in preset and None not in choices and asked not in choices:
            declared[axis] = choices[0]
    return declared


def _composed(gate: Gate, case: Case, choices: dict[str, Wire]) -> Case:
    declared = ", ".join(f"{axis}={choice!r}" for axis, choice in choices.items())
    if case.compose is None:
        raise UnsupportedError(f"{gate.id} is asked of presets only; the subject declares {declared}")
    try:
        return case.compose(choices)
    except ValueError as error:
        raise UnsupportedError(f"the declared {declared} cannot be asked: {error}") from None
