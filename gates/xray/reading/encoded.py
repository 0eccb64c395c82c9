"""Prompts of supervised training that nobody sampled from: where the tokenizer was given them by themselves, and whether they train."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural

BECAUSE = "each row begins with tokens that the tokenizer was given by themselves"
ALIKE = 1e-3  # of a coefficient: those of a mean over tokens are alike to 1e-5 in float32


@dataclass(frozen=True, slots=True)
class Places:
    """How often each column is a token of a prompt, and of a completion."""

    prompts: Counter[int]
    completions: Counter[int]


def reading(context: Context) -> Reading | None:
    """Return whether prompts train; None where a row's prompt is not known, or its tokens do not tell."""
    places, fit = _places(context), context.step.fit
    if places is None or not places.prompts:
        return None
    columns = np.array(sorted(places.prompts))
    known = columns[np.isfinite(fit.coefficients[columns])]
    still = fit.zero(known)
    if not len(known) or 0 < still.sum() < len(known):
        return None
    tokens = plural(len(known), "token")
    if still.all():
        return Reading("prompt", "read", f"prompts do not train ({tokens})", BECAUSE)
    count = places.completions.total()
    if not _divided_by(context, places, count):
        return Reading("prompt", "read", f"prompts train: {tokens}", BECAUSE)
    sentence = f"prompts train: {tokens}, while the loss is divided by the {count:,} tokens of completions alone"
    because = f"{BECAUSE}; each token's coefficient is 1/{count:,}, and {places.prompts.total() + count:,} train"
    remedy = "give the prompt's tokens no label, or divide by all tokens that train"
    return Reading("prompt", "attention", sentence, because, remedy, {"prompts": len(known), "divisor": count})


def _places(context: Context) -> Places | None:
    """Return which columns are of prompts and of completions; None where a row's prompt is not known."""
    prompts: Counter[int] = Counter()
    completions: Counter[int] = Counter()
    ends = set(context.step.update.document.special.eos)
    for each in context.step.rows:
        row, shown = each.row, np.flatnonzero(each.row.attended)
        if row.encoded is None or not 0 < row.encoded < len(shown):
            return None
        if row.ids[shown[row.encoded - 1]] in ends:  # a whole document, and another one behind it
            return None
        columns = row.columns[shown]
        prompts.update(int(column) for column in columns[: row.encoded] if column >= 0)
        completions.update(int(column) for column in columns[row.encoded :] if column >= 0)
    return Places(prompts, completions)


def _divided_by(context: Context, places: Places, count: int) -> bool:
    """Return whether every token has the coefficient of a mean over so many tokens."""
    fit, clip = context.step.fit, context.step.update.document.clip
    if count in {len(context.step.rows), places.prompts.total() + count}:
        return False  # a mean over rows of sums, or over all tokens
    times = places.prompts + places.completions
    columns = np.array([column for column in sorted(times) if np.isfinite(fit.coefficients[column])])
    wanted = -np.array([times[int(column)] for column in columns]) / count * (clip.factor if clip else 1.0)
    apart = np.abs(fit.coefficients[columns] - wanted)
    return bool((apart <= ALIKE * np.abs(wanted) + 10 * fit.errors[columns]).all())
