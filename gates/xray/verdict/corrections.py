"""Off-policy corrections that an update may have computed: another one, none, or one by wrong log-probs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.model import Array
from gates.recorded.weights import WORDS
from gates.xray.verdict.definitions import Definition, Settings
from gates.xray.verdict.inputs import Inputs
from gates.xray.verdict.mistakes import Named
from gates.xray.verdict.prediction import Predictor
from gates.xray.verdict.question import MOST, Question
from gates.xray.verdict.rewards import Advantages
from gates_reference.oracle.ratio import CORRECTIONS

LEVELS = {"token": "of each token", "seq_sum": "of the row's product"}
BOUNDS = (2.0, 3.0, 5.0, 10.0)  # c_max that libraries have
UNBOUNDED = 1e30
KEYS = ("correction", "correction_level", "correction_low", "correction_high")


@dataclass(frozen=True)
class _Other:
    words: str
    convention: bool
    changes: Mapping[str, Any]
    sampling: Array | None = None


def named(ask: Question, asked: Sequence[Settings], wanted: Sequence[Advantages]) -> list[Named]:
    """Return the other corrections that give the coefficients, conventions first."""
    if ask.predictor.inputs.sampling is None:
        return []
    fits = []
    for other in _others(ask.settings, ask.predictor.inputs):
        inputs = ask.predictor.inputs if other.sampling is None else _with(ask.predictor.inputs, other.sampling)
        predictor = Predictor(ask.predictor.measured, inputs, ask.facts)
        misfits = (
            predictor.misfit(Definition({**each, **other.changes}, values))
            for each in asked
            for values in wanted[:MOST]
        )
        if (misfit := next((one for one in misfits if one <= 1.0), None)) is not None:
            fits.append(Named(other.words, other.convention, misfit, other.changes if other.convention else {}))
    return sorted(fits, key=lambda each: not each.convention)


def _with(inputs: Inputs, sampling: Array) -> Inputs:
    return replace(inputs, sampling=sampling)


def _others(settings: Settings, inputs: Inputs) -> Iterator[_Other]:
    if not settings.get("correction"):
        for name in CORRECTIONS:
            for level, of in LEVELS.items():
                for bound in BOUNDS:
                    changes = {"correction": name, "correction_level": level, "correction_high": bound}
                    yield _Other(f"an off-policy correction: {WORDS[name]} {of}, c_max {bound:g}", True, changes)
        return
    yield from _other_choices(settings)
    yield _Other("no off-policy correction", False, dict.fromkeys(KEYS))
    yield _Other("the off-policy correction without its upper bound", False, {"correction_high": UNBOUNDED})
    if settings.get("correction_low"):
        yield _Other("the off-policy correction without its lower bound", False, {"correction_low": None})
    yield from _other_log_probs(inputs)


def _other_choices(settings: Settings) -> Iterator[_Other]:
    for name in CORRECTIONS:
        for level, of in LEVELS.items():
            asked = settings.get("correction_level", level)
            if (name, level) != (settings["correction"], asked):
                changes = {
                    key: value
                    for key, value in (("correction", name), ("correction_level", level))
                    if settings.get(key) != value
                }
                words = f"{WORDS[name]} {of} (asked: {WORDS[settings['correction']]} {LEVELS[asked]})"
                yield _Other(words, True, changes)


def _other_log_probs(inputs: Inputs) -> Iterator[_Other]:
    """Yield corrections by ratios of other log-probs, written as other log-probs of the sampler."""
    assert inputs.sampling is not None
    sampling = inputs.sampling
    yield _Other("the off-policy weight upside down: sampler over trainer", False, {}, 2.0 * inputs.old - sampling)
    by_policy = inputs.old - inputs.policy + sampling
    yield _Other("the off-policy weight of the policy that is trained, not of the old one", False, {}, by_policy)
    yield _Other("log-probs of the sampler of the next row", False, {}, np.roll(sampling, -1, axis=0))
    later = np.where(inputs.mask, np.roll(sampling, -1, axis=1), np.nan)
    yield _Other("log-probs of the sampler of the next token", False, {}, later)
    earlier = np.where(inputs.mask, np.roll(sampling, 1, axis=1), np.nan)
    yield _Other("log-probs of the sampler of the token before", False, {}, earlier)
