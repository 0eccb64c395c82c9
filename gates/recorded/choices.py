"""Tell another choice from a mistake: settings with which the whole of a recorded loss is what they ask.

The choices are the conventions among the edits of the loss's program, as in `gates check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gates.families.loss.edits import MEANS
from gates.families.program import Choices, Program
from gates.families.programs import programs
from gates.model import ConfigurationError
from gates.recorded.fields import SETTINGS
from gates.recorded.loss import compare, divisor, inputs_of, plausible
from gates.recorded.settings import Settings
from gates.recorded.step import Step

FIRST = 2048  # slots of the piece that rejects most choices before the whole step is compared
WIDTHS = ("epsilon_low", "epsilon_high")
WHOLE, LONGEST = 1e-4, 1e7  # relative distance from an integer at which a divisor is a length, and the largest one
Changes = Mapping[str, Any]  # settings to write, or None to leave one out


@dataclass(frozen=True, slots=True)
class Choice:
    """Another choice: what it computes, and the settings that ask for it."""

    words: str
    changes: Changes


def explaining(step: Step, settings: Settings) -> Choice | None:
    """Return the first single choice with which the whole step is as asked, or None.

    A loss alone is one number, which one of many choices may give by chance; then none is returned.
    """
    if not {"gradient", "row_losses"} & set(step.file.shapes):
        return None
    return next((choice for choice in _choices(step, settings) if holds(step, settings, choice.changes)), None)


def holds(step: Step, settings: Settings, changes: Changes) -> bool:
    """Whether every recorded array is what the changed settings ask."""
    changed = {name: value for name, value in {**settings, **changes}.items() if value is not None}
    try:
        return plausible(step, changed, at_once=FIRST) and compare(step, changed).holds
    except (ConfigurationError, ValueError):  # the choices do not go together, or a constant is missing
        return False


def of(program: Program, changes: Choices, settings: Settings) -> Changes:
    """Return the settings that ask for the choices of a diagnosis; empty if no setting says one."""
    if changes == {"kl_mean": "same"}:
        return {"kl_aggregation": None}
    declared = program.declared(changes)
    if not declared.keys() <= SETTINGS.keys():
        return {}
    if "dapo_denominator" in declared and settings.get("dapo_denominator") is None:
        return {"aggregation": "token-mean", **declared}
    if declared.get("aggregation") == "token-mean":
        return {**declared, "dapo_denominator": "global"}
    if declared.get("bound") == "none":
        return {**declared, **{name: None for name in WIDTHS if name in settings}}
    return declared


def written(changes: Changes) -> str:
    """Return what to write, as text after the computed formula: "`aggregation` 'constant'"."""
    left_out = " and ".join(f"`{name}`" for name, value in changes.items() if value is None)
    settings = ", ".join(f"`{name}` '{_text(value)}'" for name, value in changes.items() if value is not None)
    parts = [f"write {settings}" if settings else "", f"leave out {left_out}" if left_out else ""]
    return " and ".join(filter(None, parts)) + " if it is meant" if changes else ""


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _choices(step: Step, settings: Settings) -> Iterator[Choice]:
    program = programs()["policy_loss"]
    asked = program.asked(inputs_of(step, step.piece(0, 1), settings))
    known = {name for name in ("max_length", "micro_batches", "tokens_in_step") if name in settings}
    asked = {**asked, "given": asked["given"] | known | ({"group_size"} if step.group_size else set())}
    for edit in program.edits(asked):
        if edit.convention and (changes := of(program, edit.changes, settings)):
            yield Choice(edit.sentence, changes)
    if "max_length" not in settings and (length := _length(step, settings)):
        words = f"{MEANS['constant'][0]} with L_max {length} (asked: {MEANS[asked['mean']][0]})"
        yield Choice(words, {"aggregation": "constant", "max_length": length})


def _length(step: Step, settings: Settings) -> int:
    """Return the constant by which a recorded gradient is divided for each row, or 0 if it is not an integer."""
    if "gradient" not in step.file:
        return 0
    try:
        observed = divisor(step, {**settings, "aggregation": "constant", "max_length": 1}, at_once=FIRST)
    except (ConfigurationError, ValueError):
        return 0
    length = round(observed) if 0.5 < observed < LONGEST else 0
    return length if abs(observed - length) <= WHOLE * length else 0
