"""Whether rows that the sampler's limit ended train."""

from __future__ import annotations

import numpy as np

from gates.xray.reading import between
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import rows


def readings(context: Context) -> list[Reading]:
    """Return whether rows that the sampler's limit ended train."""
    if not context.step.fit.size or (reading := _truncated(context)) is None:
        return []
    return [reading]


def _truncated(context: Context) -> Reading | None:
    step = context.step
    cut = [i for i, row in enumerate(step.rows) if row.truncated]
    if not cut:
        return None
    trained = [i for i in cut if context.weights[i] != 0.0 and np.isfinite(context.weights[i])]
    numbers = {"rows": cut, "trained": trained}
    names = f"all {len(cut)} rows" if 1 < len(cut) == len(step.rows) else rows(cut)
    head = f"{names} {'was' if len(cut) == 1 else 'were'} cut off by the limit of tokens"
    because = "no closing token, and as long as the sampler was asked for"
    if len(trained) == len(cut):
        return Reading(
            "truncated", "read", f"{head} and {'trains' if len(cut) == 1 else 'train'}", because, numbers=numbers
        )
    whole = [i for i, row in enumerate(step.rows) if not row.truncated]
    if trained and all(context.weights[i] != 0.0 for i in whole) and not context.earlier and not _without(context):
        return Reading(
            "truncated",
            "attention",
            f"{head}; {rows(trained)} {'trains' if len(trained) == 1 else 'train'}, the others do not",
            because,
            numbers=numbers,
        )
    remedy = "a row that is masked, one whose advantage is 0 and one that a bound switched off look alike: gates_note(advantages=…) would tell"
    without = [i for i in cut if i not in trained]
    have = (
        f"; {rows(without)} {'has' if len(without) == 1 else 'have'}"
        if trained
        else f" and {'has' if len(cut) == 1 else 'have'}"
    )
    return Reading(
        "truncated",
        "cannot tell",
        f"{head}{have} no weight",
        because,
        remedy,
        numbers,
    )


def _without(context: Context) -> bool:
    """Return whether the rows of each prompt sum to 0 without those that weigh nothing: their advantages are 0 then."""
    return any(between.sums_to_zero(context, way) for way in between.ways_of(context))
