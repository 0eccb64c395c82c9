"""Explain a recorded loss that differs from its definition by what no setting declares.

A difference that a setting would explain is no mistake: the finding names the setting.
"""

from __future__ import annotations

import math

import numpy as np

from gates.recorded.loss import LossErrors, compare, extras_of
from gates.recorded.settings import Settings
from gates.recorded.step import Step

HOW = (
    "declare what else the loss holds: `entropy_bonus` with the tensor `entropy`, or the tensor `auxiliary_loss`, such as a "
    "router's"
)
LARGEST = 1.0  # of an entropy bonus that is read from a loss
DIGITS, CLOSE = 2, 1e-3  # of such a bonus, and how near it must be


def remainder(step: Step, settings: Settings, errors: LossErrors) -> str:
    """Return which undeclared setting would explain a loss that does not hold, or ""."""
    if not math.isfinite(errors.loss.worst):
        return ""
    empty = int((~step.trained).sum())
    if empty and "empty_rows" not in settings and _explains(step, settings, {"empty_rows": "left-out"}):
        rows = "row without tokens is" if empty == 1 else "rows without tokens are"
        return f"it fits if {empty} {rows} left out: write `empty_rows` 'left-out' if that is meant"
    if "entropy" not in step.file or "entropy_bonus" in settings or not _all_but_the_loss_holds(errors):
        return ""
    for mean in ("tokens", "loss"):
        bonus = _bonus(step, {**settings, "entropy_mean": mean, "entropy_bonus": 1.0}, errors)
        if bonus and _explains(step, settings, {"entropy_bonus": bonus, "entropy_mean": mean}):
            how = f"`entropy_bonus` {bonus:g}" + (" and `entropy_mean` 'loss'" if mean == "loss" else "")
            return f"it fits with {bonus:g} times the mean of `entropy` taken off: write {how} if that is meant"
    return ""


def _explains(step: Step, settings: Settings, more: Settings) -> bool:
    return compare(step, {**settings, **more}).holds


def _all_but_the_loss_holds(errors: LossErrors) -> bool:
    arrays = [array for array in (errors.rows, errors.gradient) if array is not None]
    return all(array.holds for array in arrays) and errors.outside[0] == 0.0


def _bonus(step: Step, settings: Settings, errors: LossErrors) -> float:
    """Return the short decimal by which the mean entropy explains the loss, or 0."""
    mean = extras_of(step, settings).entropy.value
    bonus = -errors.off / mean if mean else 0.0
    short = float(f"{bonus:.{DIGITS}g}") if np.isfinite(bonus) else 0.0
    return short if 0.0 < abs(short) <= LARGEST and abs(short - bonus) <= CLOSE * abs(short) else 0.0
