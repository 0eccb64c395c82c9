"""Rows that were sampled after an update: by whose weights, and whether the ratio is to weights that are older than they are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from gates.xray.reading import shapes
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.words import plural
from gates.xray.step import EQUAL

OURS, START = {"trained model", "copy"}, {"start"}  # whose weights a sampler has, as it is recorded
BEFORE = re.compile(r"the weights before update (\d+)")
REFRESH = "copy the trained weights to the sampler after each update"
RESCORE = "score old log-probs with the weights that sampled the rows, not with the reference or an older copy"


def sampler(context: Context) -> list[Reading]:
    """Return that a copy of the model has sampled the rows, and still has the weights of the start."""
    number = context.step.update.number
    if not _by(context, START):
        return []
    corrected = _age(context) == number - 1
    sentence = (
        f"a copy of the model has sampled these rows, with the weights before update 1, though {plural(number - 1, 'update')} "
        f"{'was' if number == 2 else 'were'} made before: the sampler's weights are stale"
    )
    if corrected:
        sentence += "; the ratio is to the same weights"
    else:
        sentence += ", and no ratio to them corrects for it"
    because = "its weights are those that the trained model had before update 1, and no longer has"
    kind: Kind = "read" if corrected else "attention"
    return [Reading("sampler", kind, sentence, because, "" if corrected else REFRESH)]


def older(context: Context, ratio: Reading) -> Reading:
    """Return the reading of a ratio, with the complaint that its weights are older than the rows, where the trained ones sampled them."""
    age = _age(context)
    if ratio.kind != "read" or age < 1 or not _by(context, OURS):
        return ratio
    reference = " (the reference has them too)" if _of_reference(context) else ""
    sentence = (
        f"{ratio.sentence}; these weights{reference} are {plural(age, 'update')} older than the rows, which the trained model has "
        f"sampled after update {context.step.update.number - 1}: the ratio ought to be 1"
    )
    return replace(ratio, kind="attention", sentence=sentence, remedy=RESCORE)


def _by(context: Context, weights: set[str]) -> bool:
    """Return whether all rows of an update were sampled after the update before, by a model with such weights."""
    number = context.step.update.number
    asked = {event.get("weights") for event in context.recording.of("generate", number)}
    if number < 2 or not asked or not asked <= weights:
        return False
    drawn = [
        (*map(int, event.get("prompt", [])), *map(int, event.get("completion", [])))
        for event in context.recording.of("sampled", number)
    ]
    rows = [tuple(np.array(row.row.ids)[row.row.attended].tolist()) for row in context.step.rows]
    return all(any(ids and (row[: len(ids)] == ids or ids[: len(row)] == row) for ids in drawn) for row in rows)


def _age(context: Context) -> int:
    """Return how many updates the weights of the ratio are older than those of this one; 0 without a ratio."""
    before = BEFORE.fullmatch(context.shape.old or "") if context.fitting else None
    return context.step.update.number - int(before[1]) if before else 0


def _of_reference(context: Context) -> bool:
    """Return whether the old log-probs are those of another model that was scored."""
    old = [
        source.values
        for source in shapes.olds(context.step, [before.step for before in context.earlier])
        if source.name == context.shape.old
    ]
    others = [
        values
        for scorer, values in context.step.update.scored
        if scorer.by in {"another model", "trained model with adapters off"}
    ]
    columns = context.tokens.column
    return any(np.allclose(a[columns], b[columns], rtol=0, atol=EQUAL) for a in old for b in others)
