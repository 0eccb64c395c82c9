"""Judge every quantity of a recorded step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gates.families.ratio import program
from gates.model import IN_FLOAT32
from gates.recorded import advantages, drift, identify, loss, metrics, naming, unexplained
from gates.recorded.file import StepFile, open_step
from gates.recorded.finding import DECISIVE, Compared, Finding, Status
from gates.recorded.settings import Settings
from gates.recorded.step import Step

WEIGHTS = "importance_weights"


def judged(path: Path, show: Callable[[str], None] = lambda _: None) -> tuple[StepFile, list[Finding]]:
    """Return the file and a verdict on each quantity; `show` is called with the name of the current one.

    Raises:
        ConfigurationError: not a recorded step, or its tensors and settings contradict each other.
    """
    file = open_step(path)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        show("mask")
        step = Step(file)
        show("advantages")
        findings = [advantages.judge(step)]
        show("off-policy weights")
        findings.append(_weights(step))
        show("loss and gradient")
        findings.append(_loss(step))
        show("metrics")
        findings += metrics.judge(step)
        show("sampler drift")
        findings.append(drift.judge(step))
    return file, findings


def _loss(step: Step) -> Finding:
    settings = step.file.settings
    name = f"policy_loss[{settings['algorithm']}]" if "algorithm" in settings else identify.QUANTITY
    if missing := next((tensor for tensor in ("policy", "advantages", "loss") if tensor not in step.file), ""):
        return Finding(name, "unsupported", f"the file has no tensor `{missing}`")
    if "algorithm" not in settings:
        return identify.identify(step)
    errors = loss.compare(step, settings)
    arrays = {"loss": errors.loss, "row_losses": errors.rows, "gradient": errors.gradient}
    numbers = {name: array.numbers for name, array in arrays.items() if array is not None}
    if errors.holds:
        if step.tokens > DECISIVE and errors.gradient is None and errors.rows is None:
            reason = (
                f"the loss of {step.tokens} tokens fits, but so would that of a shifted mask: record `gradient` or "
                f"`row_losses` (a loss alone decides up to {DECISIVE} tokens)"
            )
            return Finding(name, "cannot tell", reason, numbers=numbers)
        return Finding(name, "correct", _held(errors), strength=naming.shown(step, settings), numbers=numbers)
    return _failed(step, settings, name, errors, numbers)


def _failed(step: Step, settings: Settings, name: str, errors: loss.LossErrors, numbers: dict[str, Any]) -> Finding:
    reason = _reason(errors)
    if remainder := unexplained.remainder(step, settings, errors):
        return Finding(name, "cannot tell", f"{remainder}; {reason}", numbers=numbers)
    if errors.poisoned and _only_masked(errors):
        return Finding(name, "fragile", f"what is not finite in masked slots reaches it: {reason}", numbers=numbers)
    finite = math.isfinite(errors.loss.worst)  # else it is like every candidate, and like none
    diagnosis = naming.named(step, settings, _row(errors)) if finite else None
    status: Status = "wrong"
    computes = "" if diagnosis is None else diagnosis.words or "nothing that is known"
    if diagnosis is not None:
        if diagnosis.kind == "constant":
            return Finding(name, "cannot tell", f"{reason}; {unexplained.HOW}", diagnosis.words, numbers=numbers)
        if diagnosis.kind in {"lower precision", "as asked"}:
            status = "imprecise"
        if diagnosis.kind == "as asked":
            off = IN_FLOAT32 if IN_FLOAT32 in diagnosis.words else f"{diagnosis.rho:.2g} limits off"
            computes = f"what is asked, {off}"
        if diagnosis.kind == "as asked" and errors.rows is not None and not errors.rows.holds:
            status, computes = "wrong", "what is asked, but for its row losses"
        if diagnosis.kind == "nothing known" and diagnosis.where:
            computes += f"; {diagnosis.where}"
    return Finding(name, status, reason, computes, numbers=numbers)


def _only_masked(errors: loss.LossErrors) -> bool:
    """Return whether every finite number is right, so that only masked slots are to blame."""
    return all(array.worst_finite <= 1.0 for array in errors.compared)


def _row(errors: loss.LossErrors) -> int:
    """Return a row that differs."""
    location = errors.outside[1]
    if errors.gradient is not None and not errors.gradient.holds:
        location = errors.gradient.location
    row = location.partition("[")[2].partition(",")[0]
    return int(row) if row.isdecimal() else 0


def _reason(errors: loss.LossErrors) -> str:
    """Return the errors, the gradient's first, which reveals most."""
    reasons = [array.summary for array in reversed(errors.compared) if not array.holds]
    if errors.outside[0]:
        reasons.append(f"the gradient is not 0 where no token stands ({errors.outside[1]})")
    if errors.loss.holds and errors.gradient is not None and not errors.gradient.holds:
        reasons.append("the loss itself fits")
    return "; ".join(reasons)


def _held(errors: loss.LossErrors) -> str:
    worst = ", ".join(f"{array.name} {array.worst:.2g}" for array in errors.compared)
    return f"{worst} textbook limits off at most"


def _weights(step: Step) -> Finding:
    settings = step.file.settings
    for name in ("weights", "sampling"):
        if name not in step.file:
            return Finding(WEIGHTS, "unsupported", f"the file has no tensor `{name}`")
    for name in ("correction", "correction_level", "correction_high"):
        if name not in settings:
            return Finding(WEIGHTS, "unsupported", f"the file has no setting `{name}`")
    if "policy" not in step.file:
        return Finding(WEIGHTS, "unsupported", "the file has no tensor `policy`")
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
        want, got = loss.off_policy(inputs, settings), step.slots("weights", piece)
        if got.ndim == 2 and per_row:
            want, limits = (np.where(piece.mask, values[:, None], 0.0) for values in (want, limits))
        elif got.ndim != want.ndim:
            return Finding(WEIGHTS, "wrong", "`weights` has one number a row, must have one for each token")
        if got.ndim == 2:
            got = np.where(piece.mask, got, 0.0)
        compared.add(got, want, limits, piece.start)
    status: Status = "correct" if compared.holds else "wrong"
    return Finding(WEIGHTS, status, compared.summary, numbers=compared.numbers)
