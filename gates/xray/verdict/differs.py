"""The verdict on coefficients that the definition asked for does not give: another choice, a factor, or a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gates.diagnosis.factors import quotient
from gates.model import Array
from gates.recorded import choices
from gates.xray.reading.words import number, plural
from gates.xray.verdict import corrections, definitions, mistakes, rewards
from gates.xray.verdict.definitions import Definition, Settings
from gates.xray.verdict.mistakes import Named
from gates.xray.verdict.question import MOST, Question
from gates.xray.verdict.rewards import Advantages
from gates.xray.verdict.solved import other_advantages, words_of
from gates.xray.verdict.verdict import Verdict

FEW = 4  # definitions whose edits are tried
AXES = ("ratio_level", "bound", "aggregation")
PENALTY = ("beta", "kl_estimator", "kl_ratio", "kl_aggregation", "max_length")
WIDTHS = ("epsilon_low", "epsilon_high")
FACTOR = (
    "note `advantages` as the loss scales them if it is meant; else look at the division by the passes of an update (gradient "
    "accumulation), by rows or by tokens"
)
HALF = "cannot be told from half-precision arithmetic of a ratio"
NAME = "note the settings `algorithm` and its constants to have it judged"


def verdict(ask: Question, asked: Sequence[Settings], wanted: Sequence[Advantages]) -> Verdict:
    """Return the verdict, with what is computed instead."""
    error = _error(ask, asked, wanted)
    if named := corrections.named(ask, asked, wanted):
        return _mistake(ask, named, error)
    if (choice := _choice(ask, asked, wanted)) is not None:
        return Verdict(ask.quantity, "differs", error, choice.words, remedy=_remedy(choice.changes))
    if ask.note.ambiguous:
        sentence = f"equal completions of one prompt have different numbers, and which is whose is not noted; {error}"
        return Verdict(
            ask.quantity,
            "cannot tell",
            sentence,
            remedy="note rewards or advantages in the order of the rows, without ids",
        )
    known = [_with_length(each, ask) for each in _distinct(asked)]
    tried = [Definition(settings, advantages) for advantages in wanted[:MOST] for settings in known]
    if (factor := _factor(ask, tried)) is not None:
        return _scaled(ask, *factor, error)
    if named := _mistaken(ask, tried, wanted[:MOST]):
        return _mistake(ask, named, error)
    return _unknown(ask, tried, wanted, error)


def _unknown(ask: Question, tried: Sequence[Definition], wanted: Sequence[Advantages], error: str) -> Verdict:
    """Return the verdict on coefficients that have no name: with other advantages, by rounding, or nothing known."""
    if (solved := other_advantages(ask.predictor, tried)) is not None:
        return _other_values(ask, solved[0], solved[1], wanted, error)
    remedy = "" if ask.named else NAME
    if ask.named and ask.rounded and ask.facts.moved:
        return Verdict(ask.quantity, "cannot tell", error, HALF, remedy="record the script in float32")
    return Verdict(ask.quantity, "wrong" if ask.named else "cannot tell", error, "nothing that is known", remedy=remedy)


def _mistake(ask: Question, named: Sequence[Named], error: str) -> Verdict:
    conventions = [each for each in named if each.convention]
    errors = [each for each in named if not each.convention]
    shown = [*conventions[: 1 if errors else None], *errors]
    words = list(dict.fromkeys(each.words for each in shown))
    text = words[0] if len(words) == 1 else "cannot tell " + " or ".join(f"“{each}”" for each in words[:3])
    remedy = _remedy(conventions[0].changes) if conventions else ""
    return Verdict(ask.quantity, "differs" if conventions else "wrong", error, text, remedy=remedy)


def _other_values(
    ask: Question, definition: Definition, values: Array, wanted: Sequence[Advantages], error: str
) -> Verdict:
    """Return the verdict on a loss whose advantages are not those of the note: wrong where the note says them."""
    numbers = {"advantages": [float(value) for value in values]}
    if ask.named and (ask.note.says_advantages or "scale" in ask.settings):
        by_row = wanted[0].values.ndim == 1
        words = words_of(values, wanted[0].values) if by_row else "the loss as asked, with one advantage a row"
        return Verdict(ask.quantity, "wrong", error, words, numbers=numbers)
    shape = definitions.words_of(definition, ask.facts, ask.settings)
    sentence = f"{shape}, with advantages that no convention gives from the noted rewards"
    return Verdict(
        ask.quantity, "cannot tell", sentence, remedy="note `advantages`, as the loss has them", numbers=numbers
    )


def _remedy(changes: Mapping[str, Any]) -> str:
    return choices.written(changes).replace("write ", "note ", 1)


def _scaled(ask: Question, definition: Definition, factor: float, error: str) -> Verdict:
    """Return the verdict on coefficients that are a definition's times one number."""
    numbers = {"factor": factor}
    if factor < 0.0:
        times = "" if abs(factor + 1.0) < 1e-3 else f", times {number(-factor, 6)}"
        return Verdict(ask.quantity, "wrong", error, f"the loss with the wrong sign{times}", numbers=numbers)
    call = ask.predictor.call(definition)
    call |= {"group_size": ask.facts.group_size, "micro_batches": list(ask.facts.micro_batches)}
    names = [each.words for each in quotient([call], factor, definitions.SURE, single=False)]
    names = [*_left_out(ask, factor), *names]
    like = f" ({' or '.join(names[:2])})" if names else ""
    sentence = f"the coefficients are those of the definition times a constant factor of {number(factor, 6)}{like}"
    return Verdict(ask.quantity, "cannot tell", sentence, remedy=FACTOR, numbers=numbers)


def _left_out(ask: Question, factor: float) -> Iterator[str]:
    """Yield the factor of a divisor that counts the tokens of rows that do not train."""
    every = sum(ask.note.lengths[row] for row in ask.note.rows) if ask.note.lengths is not None else 0
    trained = int(ask.predictor.inputs.mask.sum())
    if trained < every and abs(factor * every - trained) <= definitions.SURE * trained:
        yield f"{trained} tokens that train / {every} tokens of all rows: rows that are left out count in the divisor"


def _error(ask: Question, settings: Sequence[Settings], advantages: Sequence[Advantages]) -> str:
    """Return by how much the nearest definition is off, as a share of its largest coefficient, and at how many tokens."""
    measured, best = ask.predictor.measured, (float("inf"), 0)
    for each in settings:
        for values in advantages[:MOST]:
            wanted = ask.predictor.of(Definition(each, values))
            if wanted is not None:
                off = np.abs(measured.values - wanted[0])
                largest = float(off.max(initial=0.0) / max(float(np.abs(wanted[0]).max(initial=0.0)), 1e-300))
                best = min(best, (largest, int((off > measured.limits).sum())))
    if not np.isfinite(best[0]):
        return "no definition goes with these inputs"
    nearest = "" if len(settings) * len(advantages) == 1 else " from the nearest definition"
    return f"{plural(best[1], 'token')} off{nearest}, by up to {_percent(best[0])} of the largest coefficient"


def _percent(value: float) -> str:
    return f"{100.0 * value:.0f}%" if value >= 0.01 else f"{100.0 * value:.1g}%"


def _distinct(settings: Sequence[Settings]) -> list[Settings]:
    """Return the first settings of each composition, whatever their widths."""
    kept: dict[tuple[Any, ...], Settings] = {}
    for each in settings:
        row = Definition(each, Advantages("", np.zeros(0), {})).row
        kept.setdefault((row.ratio_level, row.bound, row.aggregation, each.get("dapo_denominator")), each)
    return list(kept.values())


def _with_length(settings: Settings, ask: Question) -> Settings:
    """Return settings whose length, where nobody says it, is that of the longest completion: the limit ended it."""
    if not definitions.lacks_length(settings):
        return settings
    return {**settings, "max_length": int(ask.predictor.inputs.mask.sum(axis=1).max(initial=1))}


def _choice(ask: Question, asked: Sequence[Settings], wanted: Sequence[Advantages]) -> Named | None:
    """Return other choices that give the coefficients: of advantages, of the composition, of both."""
    names = {each.words for each in wanted}
    others = [each for each in rewards.published(ask.note) if each.words not in names]
    if fits := ask.fitting(asked, others):
        definition, misfit = fits[0]
        return Named(_of_advantages(definition, wanted), True, misfit, _of_rewards(ask, definition))
    if not ask.named:
        return None
    start = Definition(asked[0], wanted[0])
    for without in (("max_length",), PENALTY, (*PENALTY, *WIDTHS)):
        kept = {name: value for name, value in ask.settings.items() if name not in without}
        settings = [{**each, **_again(each, ask.settings)} for each in definitions.every(kept, ask.facts)]
        for advantages in (wanted, others[:MOST]):
            if fits := ask.fitting(settings, advantages):
                definition, misfit = max(fits, key=lambda fit: _alike(fit[0], start))
                words, changes = _against(definition, start, ask), _changes(definition, start, ask.settings)
                if definition.advantages.words not in names:
                    words = f"{words}; advantages: {_of_advantages(definition, wanted)}"
                    changes = {**changes, **_of_rewards(ask, definition)}
                return Named(words, True, misfit, changes)
    return None


def _again(settings: Settings, written: Settings) -> Settings:
    """Return the noted length where a composition divides by one and the recording knows none."""
    return (
        {"max_length": written["max_length"]} if settings.get("max_length") is None and "max_length" in written else {}
    )


def _of_advantages(definition: Definition, wanted: Sequence[Advantages]) -> str:
    return f"{definition.advantages.words} (asked: {wanted[0].words})"


def _of_rewards(ask: Question, definition: Definition) -> Mapping[str, Any]:
    if ask.note.says_advantages:
        return {}
    return {name: value for name, value in definition.advantages.changes.items() if value != ask.settings.get(name)}


def _alike(definition: Definition, asked: Definition) -> int:
    """Return how many choices two definitions share."""
    same = sum(int(getattr(definition.row, axis) == getattr(asked.row, axis)) for axis in AXES)
    names = (*WIDTHS, "beta", "kl_estimator", "max_length", "dapo_denominator")
    return 10 * same + sum(int(definition.settings.get(name) == asked.settings.get(name)) for name in names)


def _against(definition: Definition, asked: Definition, ask: Question) -> str:
    return f"{definitions.words_of(definition, ask.facts, {})} (asked: {definitions.words_of(asked, ask.facts, {})})"


def _changes(definition: Definition, asked: Definition, settings: Settings) -> Mapping[str, Any]:
    """Return what to note if a composition is meant."""
    row, other = definition.row, asked.row
    axes = {axis: getattr(row, axis) for axis in AXES if getattr(row, axis) != getattr(other, axis)}
    names = [*row.constants, *PENALTY]
    constants = {
        name: definition.settings[name]
        for name in dict.fromkeys(names)
        if definition.settings.get(name) not in [None, 0.0, settings.get(name), asked.settings.get(name)]
        and (name not in WIDTHS or definition.settings.get("bound", other.bound) != other.bound or name in settings)
    }
    if settings.get("beta") and not definition.settings.get("beta"):
        constants["beta"] = None
    return {**axes, **constants}


def _factor(ask: Question, tried: Sequence[Definition]) -> tuple[Definition, float] | None:
    """Return the definition that gives the coefficients but for a common factor, with the factor."""
    measured = ask.predictor.measured
    for definition in tried:
        wanted = ask.predictor.of(definition)
        if wanted is None:
            continue
        factor = measured.factor(wanted[0])
        if np.isfinite(factor) and factor and measured.misfit(*(factor * each for each in wanted)) <= 1.0:
            return definition, factor
    return None


def _mistaken(ask: Question, tried: Sequence[Definition], wanted: Sequence[Advantages]) -> list[Named]:
    """Return the mistakes that give the coefficients: advantages of other rows, other masks, else edits of the definition.

    Rows that a mask leaves out because somebody means it may be left out by mistake too, so edits are tried beside it.
    """
    settings = list({repr(each.settings): each.settings for each in tried}.values())
    named = list(_of_other_rows(ask, settings, wanted)) or mistakes.by_mask(ask.whole, ask.parts, tried)
    if named and not all(each.convention for each in named):
        return named
    return [*named, *(each for definition in tried[:FEW] for each in mistakes.by_edit(ask.predictor, definition))]


def _of_other_rows(ask: Question, settings: Sequence[Settings], wanted: Sequence[Advantages]) -> Iterator[Named]:
    for advantages in rewards.mistaken(ask.note, wanted):
        for each in settings:
            misfit = ask.predictor.misfit(Definition(each, advantages))
            if misfit <= 1.0:
                yield Named(advantages.words, False, misfit)
                break
