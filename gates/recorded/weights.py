"""Compare the off-policy weights of a recorded step with the correction that its settings name."""

from __future__ import annotations

import numpy as np

from gates.families.ratio import program
from gates.recorded import choices
from gates.recorded.finding import Compared, Finding
from gates.recorded.loss import off_policy
from gates.recorded.settings import Settings
from gates.recorded.step import Step

QUANTITY = "importance_weights"
WORDS = {"tis": "ratios truncated at the bounds (TIS)", "mis": "ratios 0 outside the bounds (MIS)"}


def judge(step: Step) -> Finding:
    """Return the verdict on the weights."""
    settings = step.file.settings
    for name in ("weights", "sampling"):
        if name not in step.file:
            return Finding(QUANTITY, "unsupported", f"the file has no tensor `{name}`")
    for name in ("correction", "correction_level", "correction_high"):
        if name not in settings:
            return Finding(QUANTITY, "unsupported", f"the file has no setting `{name}`")
    if "policy" not in step.file:
        return Finding(QUANTITY, "unsupported", "the file has no tensor `policy`")
    compared = _compare(step, settings)
    if compared is None:
        return Finding(QUANTITY, "wrong", "`weights` has one number a row, must have one for each token")
    if compared.holds:
        return Finding(QUANTITY, "correct", compared.summary, numbers=compared.numbers)
    return _another(step, settings, compared)


def _another(step: Step, settings: Settings, compared: Compared) -> Finding:
    """Return the verdict on weights that do not hold: those of another correction, or wrong."""
    asked = settings["correction"]
    for changes in ({"correction": name} for name in WORDS if name != asked):
        other = _compare(step, {**settings, **changes})
        if other is not None and other.holds:
            words = f"{WORDS[changes['correction']]} (asked: {WORDS[asked]})"
            meant = choices.written(changes)
            return Finding(QUANTITY, "differs", compared.summary, words, numbers=compared.numbers, declare=meant)
    return Finding(QUANTITY, "wrong", compared.summary, numbers=compared.numbers)


def _compare(step: Step, settings: Settings) -> Compared | None:
    """Return the worst error of the weights, or None if rows have one number and tokens should."""
    compared, per_row = Compared("weight"), settings["correction_level"] == "seq_sum"
    for piece in step.pieces():
        trainer = step.slots("old" if "old" in step.file else "policy", piece)
        inputs = {"policy": trainer, "old": trainer, "sampling": step.slots("sampling", piece), "mask": piece.mask}
        clean = {name: np.where(piece.mask, inputs[name], 0.0).astype(trainer.dtype) for name in ("old", "sampling")}
        limits = program.importance_weights(
            **clean,
            correction=settings["correction"],
            level=settings["correction_level"],
            c_min=settings.get("correction_low"),
            c_max=settings["correction_high"],
            mask=piece.mask,
        )["weights"]
        want, got = off_policy(inputs, settings), step.slots("weights", piece)
        if got.ndim == 2 and per_row:
            want, limits = (np.where(piece.mask, values[:, None], 0.0) for values in (want, limits))
        elif got.ndim != want.ndim:
            return None
        if got.ndim == 2:
            got = np.where(piece.mask, got, 0.0)
        compared.add(got, want, limits, piece.start)
    return compared
