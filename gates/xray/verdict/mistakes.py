"""What else an update may have computed: other slots that train, advantages of other rows, edits of the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gates.diagnosis.search import evaluate
from gates.families.loss.edits import BETAS
from gates.families.program import Edit
from gates.families.programs import programs
from gates.model import Array
from gates.recorded import choices
from gates.xray.verdict.definitions import Definition, Facts
from gates.xray.verdict.inputs import Parts
from gates.xray.verdict.prediction import Predictor

TRUNCATED = "rows that the sampler's limit ended are left out"


@dataclass(frozen=True)
class Named:
    """A formula that gives the coefficients.

    Attributes:
        words: what it computes.
        convention: whether somebody means it.
        misfit: its largest error in limits.
        changes: the settings to note if it is meant.
    """

    words: str
    convention: bool
    misfit: float
    changes: Mapping[str, Any] = field(default_factory=dict)


def masks(parts: Parts) -> Iterator[tuple[str, Array, bool]]:
    """Yield other slots that may train, in words, and whether somebody means them."""
    mask, closing = parts.completion, parts.closing
    if closing.any():
        yield "the token that closes each completion is left out", mask & ~closing, False
    if parts.prompt.any():
        yield "the prompt trains too", mask | parts.prompt, False
        yield "the prompt trains too, the closing token is left out", (mask | parts.prompt) & ~closing, False
        yield "the prompt trains, and the completion does not", parts.prompt, False
    if parts.after.any():
        yield "tokens behind the closing one train too, such as padding", mask | parts.after, False
        yield "the whole row trains, prompt and padding too", mask | parts.prompt | parts.after, False
    left = np.pad(mask[:, 1:], ((0, 0), (0, 1))) & (parts.columns >= 0)
    right = np.pad(mask[:, :-1], ((0, 0), (1, 0))) & (parts.columns >= 0)
    yield (
        "the mask is shifted by one token to the left: the prompt's last token trains, the completion's does not",
        left,
        False,
    )
    yield "the mask is shifted by one token to the right: the completion's first token does not train", right, False
    first = np.zeros_like(mask)
    some = mask.any(axis=1)
    first[np.flatnonzero(some), mask.argmax(axis=1)[some]] = True
    yield "the first token of each completion is left out", mask & ~first, False
    if parts.truncated.any() and not parts.truncated.all():
        yield TRUNCATED, mask & ~parts.truncated[:, None], True


def by_mask(whole: Predictor, parts: Parts, definitions: Sequence[Definition]) -> list[Named]:
    """Return the other masks with which a definition gives the coefficients."""
    named = []
    for words, mask, convention in masks(parts):
        if not mask.any() or np.array_equal(mask, whole.inputs.mask):
            continue
        other = Predictor(whole.measured, whole.inputs.with_mask(mask), whole.facts)
        fits = (misfit for definition in definitions if (misfit := other.misfit(definition)) <= 1.0)
        best = next(fits, None)
        if best is not None:
            named.append(Named(words, convention, best))
    return named


def by_edit(predictor: Predictor, definition: Definition) -> list[Named]:
    """Return the edits of a definition that give the coefficients, conventions first."""
    program, inputs = programs()["policy_loss"], predictor.inputs
    call = predictor.call(definition)
    asked = program.asked(call)
    named = []
    for edit in _edits(asked, predictor.facts):
        gradient = _gradient(program, call, {**asked, **edit.changes})
        if gradient is None:
            continue
        misfit = predictor.measured.misfit(predictor.measured.of(inputs.columns, gradient))
        if misfit <= 1.0:
            changes = choices.of(program, edit.changes, definition.settings) if edit.convention else {}
            named.append(Named(edit.sentence, edit.convention, misfit, changes))
    return named


def _edits(asked: Mapping[str, Any], facts: Facts) -> Iterator[Edit]:
    """Yield the edits of a loss; those of a ratio that is 1 have no effect."""
    program = programs()["policy_loss"]
    for edit in program.edits(asked):
        if edit.changes == {"kl_mean": "same"}:
            continue
        yield edit
    if not asked["beta"] and facts.apart:
        for beta in BETAS:
            more = {"beta": -beta, "estimator": "k3", "kl_ratio": "none"}
            yield Edit(f"a KL with the wrong sign (k3, β {beta:g})", more)


def _gradient(program: Any, call: Mapping[str, Any], chosen: Mapping[str, Any]) -> Array | None:
    try:
        return np.asarray(evaluate(program, call, chosen)["gradient"][0], np.float64)
    except (KeyError, TypeError, ValueError):  # a choice that needs a constant which the call lacks
        return None
