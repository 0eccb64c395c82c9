"""Judge every quantity of a recorded step."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gates.diagnosis.named import Diagnosis
from gates.families.programs import programs
from gates.model import IN_FLOAT32
from gates.recorded import advantages, choices, drift, identify, loss, metrics, naming, unexplained, weights
from gates.recorded.file import StepFile, open_step
from gates.recorded.finding import DECISIVE, Finding
from gates.recorded.settings import Settings
from gates.recorded.step import Step


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
        findings.append(weights.judge(step))
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
    wrong = Finding(name, "wrong", reason, numbers=numbers)
    if not math.isfinite(errors.loss.worst):  # it is like every candidate, and like none
        return wrong
    return _computed(step, settings, errors, wrong)


def _computed(step: Step, settings: Settings, errors: loss.LossErrors, wrong: Finding) -> Finding:
    """Return the verdict on a loss by what it computes: another choice, or a mistake."""
    if choice := choices.explaining(step, settings):
        return replace(wrong, status="differs", computes=choice.words, declare=choices.written(choice.changes))
    diagnosis = naming.named(step, settings, _row(errors))
    if diagnosis is None:
        return wrong
    wrong = replace(wrong, computes=diagnosis.words)
    if diagnosis.kind == "convention" and not errors.outside[0]:
        return _conventional(step, settings, diagnosis, wrong)
    if diagnosis.kind == "lower precision":  # a grade of the data: within the limits of half precision mistakes hide
        return replace(wrong, status="imprecise" if step.in_half_precision else "wrong")
    return _named(diagnosis, errors, wrong)


def _conventional(step: Step, settings: Settings, diagnosis: Diagnosis, wrong: Finding) -> Finding:
    """Return the verdict on a loss that a diagnosis calls other choices: with these the whole step must hold."""
    changes = choices.of(programs()["policy_loss"], diagnosis.changes, settings)
    if changes and not choices.holds(step, settings, changes):
        return replace(wrong, computes=f"{diagnosis.words}; and more")
    return replace(wrong, status="differs", declare=choices.written(changes))


def _named(diagnosis: Diagnosis, errors: loss.LossErrors, wrong: Finding) -> Finding:
    """Return the verdict on a loss whose diagnosis is not another choice."""
    if diagnosis.kind == "constant":
        return replace(wrong, status="cannot tell", reason=f"{wrong.reason}; {unexplained.HOW}")
    if diagnosis.kind == "as asked" and errors.rows is not None and not errors.rows.holds:
        return replace(wrong, computes="what is asked, but for its row losses")
    if diagnosis.kind == "as asked":
        off = IN_FLOAT32 if IN_FLOAT32 in diagnosis.words else f"{diagnosis.rho:.2g} limits off"
        return replace(wrong, status="imprecise", computes=f"what is asked, {off}")
    where = f"; {diagnosis.where}" if diagnosis.kind == "nothing known" and diagnosis.where else ""
    return replace(wrong, computes=(diagnosis.words or "nothing that is known") + where)


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
