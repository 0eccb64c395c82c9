"""Judge everything that a recorded step holds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gates.families.ratio import program
from gates.recorded import advantages, drift, identify, loss, metrics, naming
from gates.recorded.file import StepFile, open_step
from gates.recorded.finding import DECISIVE, Compared, Finding, Status
from gates.recorded.settings import Settings
from gates.recorded.step import Step

WEIGHTS = "importance_weights"


def judged(path: Path, show: Callable[[str], None] = lambda _: None) -> tuple[StepFile, list[Finding]]:
    """Return the file and a verdict on each quantity; `show` is called with what is judged now.

    Raises:
        ConfigurationError: no recorded step, or tensors and settings that contradict each other.
    """
    file = open_step(path)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        show("mask")
        step = Step(file)
        show("advantages")
        found = [advantages.judge(step)]
        show("off-policy weights")
        found.append(_weights(step))
        show("loss and gradient")
        found.append(_loss(step))
        show("metrics")
        found += metrics.judge(step)
        show("sampler drift")
        found.append(drift.judge(step))
    return file, found


def _loss(step: Step) -> Finding:
    settings = step.file.settings
    name = f"policy_loss[{settings['algorithm']}]" if "algorithm" in settings else identify.QUANTITY
    if missing := next((one for one in ("policy", "advantages", "loss") if one not in step.file), ""):
        return Finding(name, "unsupported", f"the file has no tensor `{missing}`")
    if "algorithm" not in settings:
        return identify.identify(step)
    errors = loss.compare(step, settings)
    numbers = _numbers(errors)
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
    if errors.poisoned and _only_masked(errors):
        return Finding(name, "fragile", f"what is not finite in masked slots reaches it: {reason}", numbers=numbers)
    finite = math.isfinite(errors.loss.worst)  # else it is like every candidate, and like none
    found = naming.named(step, settings, _row(errors)) if finite else None
    status: Status = "wrong"
    words = "" if found is None else found.words or "nothing that is known"
    if found is not None:
        if found.kind in {"lower precision", "as asked"}:
            status = "imprecise"
        if found.kind == "as asked":
            words = f"what is asked, {found.rho:.2g} limits off"
        if found.kind == "as asked" and errors.rows is not None and not errors.rows.holds:
            status, words = "wrong", "what is asked, but for its row losses"
        if found.kind == "nothing known" and found.where:
            words += f"; {found.where}"
    return Finding(name, status, reason, words, numbers=numbers)


def _only_masked(errors: loss.LossErrors) -> bool:
    """Return whether every finite number is right, so that only what masked slots hold is to blame."""
    compared = (one for one in (errors.loss, errors.rows, errors.gradient) if one is not None)
    return all(one.holds or math.isinf(one.worst) for one in compared)


def _row(errors: loss.LossErrors) -> int:
    """Return a row that differs."""
    place = errors.gradient.place if errors.gradient is not None and not errors.gradient.holds else errors.outside[1]
    row = place.partition("[")[2].partition(",")[0]
    return int(row) if row.isdecimal() else 0


def _reason(errors: loss.LossErrors) -> str:
    """Return what does not hold, the gradient first, for it shows most."""
    compared = [one for one in (errors.gradient, errors.rows, errors.loss) if one is not None]
    words = [one.words for one in compared if not one.holds]
    if errors.outside[0]:
        words.append(f"the gradient is not 0 where no token stands ({errors.outside[1]})")
    if errors.loss.holds and errors.gradient is not None and not errors.gradient.holds:
        words.append("the loss itself fits")
    return "; ".join(words)


def _held(errors: loss.LossErrors) -> str:
    compared = [one for one in (errors.loss, errors.rows, errors.gradient) if one is not None]
    return f"{', '.join(f'{one.name} {one.worst:.2g}' for one in compared)} textbook limits off at most"


def _numbers(errors: loss.LossErrors) -> dict[str, Any]:
    compared = {"loss": errors.loss, "row_losses": errors.rows, "gradient": errors.gradient}
    return {
        name: {"error_in_limits": one.worst, "at": one.place, "elements": one.claimed}
        for name, one in compared.items()
        if one is not None
    }


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
    found, per_row = Compared("weight"), settings["correction_level"] == "seq_sum"
    for piece in step.pieces():
        own = step.slots("old" if "old" in step.file else "policy", piece)
        inputs = {"policy": own, "old": own, "sampling": step.slots("sampling", piece), "mask": piece.mask}
        clean = {name: np.where(piece.mask, inputs[name], 0.0).astype(own.dtype) for name in ("old", "sampling")}
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
            want, limits = (np.where(piece.mask, one[:, None], 0.0) for one in (want, limits))
        elif got.ndim != want.ndim:
            return Finding(WEIGHTS, "wrong", "`weights` has one number a row, must have one for each token")
        if got.ndim == 2:
            got = np.where(piece.mask, got, 0.0)
        found.add(got, want, limits, piece.start)
    numbers = {"error_in_limits": found.worst, "at": found.place, "elements": found.claimed}
    return Finding(WEIGHTS, "correct" if found.holds else "wrong", found.words, numbers=numbers)
