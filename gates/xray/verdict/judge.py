"""Judge an update by definition, where the script has noted rewards or advantages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from gates.model import ConfigurationError
from gates.xray.reading import sampling
from gates.xray.reading.context import Context
from gates.xray.reading.words import share
from gates.xray.verdict import correct, definitions, differs, preference, rewards
from gates.xray.verdict.definitions import Settings
from gates.xray.verdict.inputs import completions, inputs_of, measured, parts_of
from gates.xray.verdict.notes import Note, noted
from gates.xray.verdict.prediction import Predictor
from gates.xray.verdict.preference.settings import LOSSES
from gates.xray.verdict.question import LOSS, Question
from gates.xray.verdict.unexplained import unexplained
from gates.xray.verdict.unmatched import UnmatchedError
from gates.xray.verdict.verdict import Verdict
from gates_reference.algorithms import ALGORITHMS

HALF = 1e-4  # of the gradient, rounded by one backward pass: float32 rounds 1e-7, bfloat16 some 1e-3
SAMPLER = "note `sampler_log_probs`, a list a row with a number for each token of the completion"
COARSE = 0.1  # limit of the typical coefficient, as a share of it, beyond which nothing is decided


def verdicts(context: Context) -> list[Verdict]:
    """Return the verdicts on an update; none where the script has noted nothing."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return list(_verdicts(context))


def _verdicts(context: Context) -> Iterator[Verdict]:
    try:
        note = noted(context)
    except UnmatchedError as error:
        yield Verdict(LOSS, "cannot tell", str(error), remedy=error.remedy)
        return
    if note is None:
        return
    if preference.named(note.settings):
        yield from _guarded(preference.quantity_of(note), lambda: [preference.verdict(context, note)])
        return
    name = note.settings.get("algorithm")
    if name is not None and str(name) not in ALGORITHMS:
        reason = (
            f"{name} has no definition by which coefficients are judged; known are {', '.join((*ALGORITHMS, *LOSSES))}"
        )
        yield Verdict(f"{LOSS}[{name}]", "unsupported", reason)
        return
    quantity = f"{LOSS}[{name}]" if name else LOSS
    yield from _guarded(quantity, lambda: _noted(context, note, quantity))


def _guarded(quantity: str, judge: Callable[[], Iterable[Verdict]]) -> Iterator[Verdict]:
    """Yield verdicts; a note that is invalid, or does not say what is needed, decides nothing."""
    try:
        yield from judge()
    except UnmatchedError as error:
        yield Verdict(quantity, "cannot tell", str(error), remedy=error.remedy)
    except ConfigurationError as error:
        yield Verdict(
            quantity, "cannot tell", str(error), remedy="correct the note's settings (docs/recorded-steps.md)"
        )


def _noted(context: Context, note: Note, quantity: str) -> Iterator[Verdict]:
    settings = definitions.parsed(note.settings)
    if settings.get("correction") and "sampler_log_probs" not in note.tokens:
        reason = "off-policy corrections weigh by log-probs of the sampler, which are not recorded"
        yield Verdict(quantity, "cannot tell", reason, remedy=SAMPLER)
        return
    if note.rewards is None and not note.says_advantages:
        reason = "the note has neither rewards nor advantages"
        yield Verdict(quantity, "unsupported", reason, remedy="note rewards and groups, or advantages")
        return
    finding = rewards.judged(note, settings)
    if finding is not None:
        yield Verdict(
            finding.quantity, finding.status, finding.reason, finding.computes, "", finding.declare, finding.numbers
        )
    if not note.says_advantages and note.groups is None:
        reason = "the note has rewards, and nobody knows which rows are of one prompt"
        yield Verdict(quantity, "cannot tell", reason, remedy="note groups, the prompt of each row")
        return
    verdict = _loss(context, _question(context, note, quantity, settings))
    since = max((int(event.get("update", 0)) for event in sampling.calls(context)), default=0)
    if verdict.status in {"wrong", "differs"} and since:  # a row that was sampled once more is no row of before
        again = _loss(context, _question(context, note, quantity, settings, since))
        verdict = again if again.status == "correct" else verdict
    yield verdict


def _question(context: Context, note: Note, quantity: str, settings: Settings, since: int = 0) -> Question:
    parts = parts_of(context, note)
    whole = inputs_of(context, note, parts, since)
    inputs = completions(whole, parts)
    facts = definitions.facts_of(context, note, inputs)
    values = measured(context)
    return Question(
        quantity,
        settings,
        note,
        parts,
        Predictor(values, whole, facts),
        Predictor(values, inputs, facts),
        context.step.fit.rounding > HALF,
    )


def _loss(context: Context, ask: Question) -> Verdict:
    if undecided := unexplained(context, ask.quantity) or _undecided(ask):
        return undecided
    wanted = rewards.asked(ask.note, ask.settings)
    if not wanted:
        sentence = "no convention of advantages has the noted settings"
        return Verdict(
            ask.quantity, "cannot tell", sentence, remedy="note all of scale, ddof, eps, eps_mode and baseline"
        )
    if all(not each.values.any() for each in wanted):
        sentence = "every advantage is 0, so nothing of the loss shows"
        return Verdict(ask.quantity, "cannot tell", sentence, remedy="record an update whose rewards differ")
    first = (
        definitions.asked(ask.settings, ask.facts) if ask.named else list(definitions.every(ask.settings, ask.facts))
    )
    fits = ask.fitting(first, wanted)
    verdict = correct.verdict(ask, fits) if fits else differs.verdict(ask, first, wanted)
    return replace(verdict, because=_because(context, ask))


def _undecided(ask: Question) -> Verdict | None:
    """Return why nothing can be decided, or None."""
    if not ask.predictor.inputs.mask.any():
        return Verdict(ask.quantity, "cannot tell", "where completions begin is not known", remedy="note ids")
    if ask.settings.get("beta") and ask.predictor.inputs.reference is None:
        reason = "the settings ask for a KL, and nobody scored a reference"
        return Verdict(ask.quantity, "cannot tell", reason, remedy="record a run whose reference is scored by a model")
    relative = ask.predictor.measured.relative
    if COARSE < relative < float("inf"):
        sentence = f"the coefficients are known to {share(relative)} only"
        return Verdict(ask.quantity, "cannot tell", sentence, remedy="record the script in float32, with fewer tokens")
    return None


def _because(context: Context, ask: Question) -> str:
    relative = ask.predictor.measured.relative
    inputs = ask.predictor.inputs
    ratios = f"ratios are to {inputs.of_old}" if inputs.moved else "ratios are 1"
    return (
        f"a coefficient is compared within its measured error, {share(relative)} of the typical one, not within the "
        f"textbook limit of {context.step.update.document.dtype}; {ratios}"
    )
