"""The verdict on coefficients that a definition gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gates.families.loss.program import row_of
from gates.xray.reading.words import number, plural
from gates.xray.verdict import definitions
from gates.xray.verdict.definitions import Definition
from gates.xray.verdict.question import Question
from gates.xray.verdict.verdict import Verdict
from gates_reference.algorithms import AXES

ALIKE = 1e-9  # of the largest coefficient


def verdict(ask: Question, fits: Sequence[tuple[Definition, float]]) -> Verdict:
    """Return the verdict: correct, or several definitions that the update does not tell apart."""
    best, misfit = fits[0]
    twins = [definition for definition, _ in fits if _same(ask, definition, best)]
    conventions = list(dict.fromkeys(definition.advantages.words for definition, _ in fits))
    different = _different(ask, [definition for definition, _ in fits], twins)
    shown = definitions.words_of(best, ask.facts, ask.settings, twins)
    numbers: dict[str, Any] = {
        "misfit": misfit,
        "settings": {name: value for name, value in best.settings.items() if value is not None},
        "advantages": conventions,
    }
    if different and not ask.named:
        listed = " or ".join(f"“{words}”" for words in [shown, *different][:3])
        remedy = "record rows of different lengths, or an update after a larger step; or note the settings"
        sentence = f"several definitions fit: {listed}"
        return Verdict(ask.quantity, "cannot tell", sentence, remedy=remedy, numbers=numbers)
    sentence = f"{plural(int(ask.predictor.inputs.mask.sum()), 'token')} within {number(misfit, 2)} of their precision"
    alike = _averages(ask, best)
    if alike:
        sentence += f"; here {alike} would give the same"
    identified = [] if _complete(ask) else [shown]
    return Verdict(
        ask.quantity, "correct", sentence, "; ".join([*identified, *_conventions(ask, conventions)]), numbers=numbers
    )


def _averages(ask: Question, best: Definition) -> str:
    """Return the other averages that give the coefficients as well, as a text; empty where the update decides."""
    kept = {name: value for name, value in best.settings.items() if name not in {"aggregation", "dapo_denominator"}}
    others = [
        each
        for settings in definitions.every(kept, ask.facts)
        if _shape(each := Definition(settings, best.advantages)) == _shape(best) and _mean(each) != _mean(best)
    ]
    names = [AXES["aggregation"][each.row.aggregation].text for each in others if ask.predictor.misfit(each) <= 1.0]
    return " or ".join(dict.fromkeys(names))


def _shape(definition: Definition) -> tuple[str, str]:
    return definition.row.ratio_level, definition.row.bound


def _same(ask: Question, one: Definition, other: Definition) -> bool:
    """Return whether two compositions give one prediction with the advantages of the first."""
    wanted = ask.predictor.of(one)
    alike = ask.predictor.of(Definition(other.settings, one.advantages))
    if wanted is None or alike is None or bool(one.settings.get("beta")) != bool(other.settings.get("beta")):
        return False
    room = np.maximum(ask.predictor.measured.limits, ALIKE * np.abs(wanted[0]).max(initial=0.0))
    return bool((np.abs(wanted[0] - alike[0]) <= room).all())


def _different(ask: Question, fits: Sequence[Definition], twins: Sequence[Definition]) -> list[str]:
    """Return the compositions that fit and are another function of these inputs, or average otherwise."""
    means = {_mean(twin) for twin in twins[:1]}
    others = [each for each in fits if each not in twins or _mean(each) not in means]
    words = [
        definitions.words_of(each, ask.facts, ask.settings, [twin for twin in others if _same(ask, twin, each)])
        for each in others
    ]
    return list(dict.fromkeys(words))


def _mean(definition: Definition) -> tuple[Any, ...]:
    row = definition.row
    return row.aggregation, definition.settings.get("dapo_denominator") if row.aggregation == "token-mean" else None


def _complete(ask: Question) -> bool:
    """Return whether the settings name every constant that shows."""
    if not ask.named:
        return False
    return not ask.facts.moved or all(
        name in ask.settings or name == "delta" for name in row_of(ask.settings).constants
    )


def _conventions(ask: Question, conventions: Sequence[str]) -> list[str]:
    """Return the conventions of advantages that fit, where the note leaves them open."""
    if ask.note.says_advantages or "scale" in ask.settings:
        return []
    more = f" or {len(conventions) - 2} more" if len(conventions) > 2 else ""
    return ["advantages: " + " or ".join(conventions[:2]) + more]
