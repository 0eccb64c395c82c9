"""Whether rows are paired with rows of other prompts: a pair of DPO is pushed apart by as much, so its weights tell who is whose partner."""

from __future__ import annotations

import numpy as np

from gates.xray.reading import objective
from gates.xray.reading.context import Context
from gates.xray.reading.pairs import alike, common, opposite, weight
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural

NAMED = 2  # pairs that are named
LEAST = 3  # pairs; fewer may have equal weights by chance
BECAUSE = "the weights of pairs differ, and only these rows are pushed apart by as much, token by token"
REMEDY = "keep chosen and rejected rows in one order"


def readings(context: Context) -> list[Reading]:
    """Return which rows are pushed apart by as much, where they begin unlike and others begin alike."""
    kinds = objective.readings(context)
    if not kinds or objective.sampled(context):
        return []
    up, down = kinds[0].numbers["up"], kinds[0].numbers["down"]
    if len(up) + len(down) < context.rows or len(up) != len(down) or len(up) < LEAST:
        return []
    by_weight = _partners({row: [other for other in down if opposite(context, row, other, "token")] for row in up})
    by_beginning = _partners({row: _beginning(context, row, down) for row in up})
    if by_weight is None or by_beginning is None or not _apart(context, up):
        return []
    swapped = [row for row in up if by_weight[row] != by_beginning[row] and not alike(context, row, by_weight[row])]
    if not swapped:
        return []
    shown = [
        f"row {row + 1} is with row {by_weight[row] + 1}, and row {by_beginning[row] + 1} begins like it"
        for row in swapped
    ]
    sentence = f"{len(swapped)} of {plural(len(up), 'pair')} have rows of different prompts, by their weights: {'; '.join(shown[:NAMED])}"
    sentence += f"; and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    numbers = {"pairs": [[row, by_weight[row]] for row in up], "alike": [[row, by_beginning[row]] for row in up]}
    return [Reading("pairing", "attention", sentence, BECAUSE, REMEDY, numbers)]


def _partners(candidates: dict[int, list[int]]) -> dict[int, int] | None:
    """Return the partner of each row; None where a row has none or several, or shares one."""
    if any(len(rows) != 1 for rows in candidates.values()):
        return None
    partners = {row: rows[0] for row, rows in candidates.items()}
    return partners if len(set(partners.values())) == len(partners) else None


def _beginning(context: Context, row: int, others: list[int]) -> list[int]:
    """Return the rows that share the longest beginning with a row."""
    lengths = {other: common(context, row, other) for other in others}
    longest = max(lengths.values())
    return [other for other, length in lengths.items() if length == longest]


def _apart(context: Context, rows: list[int]) -> bool:
    """Return whether the weights of rows differ beyond their errors, all of them."""
    weights, errors = (np.array(part) for part in zip(*(weight(context, row) for row in rows), strict=True))
    order = np.argsort(weights)
    gaps, room = np.diff(weights[order]), errors[order][1:] + errors[order][:-1]
    return bool((gaps > 2 * context.tokens.quantile * room).all())
