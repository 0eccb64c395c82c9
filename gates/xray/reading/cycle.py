"""Tokens that weigh by the values of several rows in turn, as where advantages are laid out in another order than tokens."""

from __future__ import annotations

import numpy as np

from gates.model import Array
from gates.xray.reading.context import Context

LEAST = 6  # tokens that must have the weight of the one a period before
SEVERAL = 3  # values of a row that no two kinds of tokens give
MANY = 16  # tokens that must agree where rows have two values


def period(context: Context) -> int | None:
    """Return after how many tokens the weights of rows come back: as many as the rows of their forward pass."""
    calls = [(row.row.rank, row.row.call) for row in context.step.rows]
    sizes = {calls.count(call) for call in calls}
    return next((size for size in sorted({max(sizes), context.rows}) if size > 1 and _comes_back(context, size)), None)


def _comes_back(context: Context, size: int) -> bool:
    """Return whether every token has the weight of the one so many places before it, and not that of its neighbour."""
    tokens, count, most = context.tokens, 0, 1
    for row in tokens.rows:
        own = tokens.row == row
        place, value = tokens.position[own], tokens.value[own]
        error = 2 * tokens.quantile * tokens.error[own]
        before = np.searchsorted(place, place - size)
        known = (place[before] == place - size) & (before < np.arange(len(place)))
        apart = np.abs(value - value[before]) > np.hypot(error, error[before])
        if (apart & known).any():
            return False
        count += int(known.sum())
        if known.any():
            most = max(most, _values(value, error))
    return count >= LEAST and (most >= SEVERAL or (most > 1 and count >= MANY))


def _values(value: Array, error: Array) -> int:
    """Return how many values differ beyond their errors."""
    order = np.argsort(value)
    return 1 + int((np.diff(value[order]) > error[order][1:] + error[order][:-1]).sum())
