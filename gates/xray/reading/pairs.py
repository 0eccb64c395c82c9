"""Preference pairs: two rows that begin alike, one pushed up and the other down by as much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gates.xray.reading.context import Context
from gates.xray.step import shared

CLEAR = 2  # pairs at least that are pushed apart, where others weigh nothing: a margin that is won


def pairs(context: Context, up: Sequence[int], down: Sequence[int], still: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return pairs of a row that is pushed up and one that is pushed down by as much: by token, or by sum over the row.

    Rows that weigh nothing may be pairs where others are: their margin is so large that the loss is flat.
    """
    for partner in partners(context):
        for unit in ("token", "row"):
            listed = [(row, partner.get(row, -1), unit) for row in up]
            if (
                not still
                and len(up) == len(down)
                and all(b in down and opposite(context, a, b, unit) for a, b, _ in listed)
            ):
                return listed
            if still and (listed := _with_flat(context, partner, set(up), set(down), unit)):
                return listed
    return []


def _with_flat(
    context: Context, partner: dict[int, int], up: set[int], down: set[int], unit: str
) -> list[tuple[int, int, str]]:
    """Return the pairs of a layout in which some rows weigh nothing; flat pairs are in the order of the others."""
    both = [(a, b) for a, b in partner.items() if a < b and partner.get(b) == a]
    clear = [(a, b) for a, b in both if (a in up and b in down) or (a in down and b in up)]
    orders = {a in up for a, _ in clear}
    flat = [pair for pair in both if pair not in clear]
    fits = 2 * len(both) == context.rows and len(clear) >= max(CLEAR, len(flat)) and len(orders) == 1
    if not fits or not all(opposite(context, a, b, unit) and alike(context, a, b) for a, b in both):
        return []
    if any({a, b} <= up or {a, b} <= down for a, b in flat):
        return []
    return [(a, b, unit) if orders == {True} else (b, a, unit) for a, b in both]


def partners(context: Context) -> list[dict[int, int]]:
    """Return who may be whose partner: the other row of a prompt, the row in the other half, the neighbour."""
    count = context.rows
    ways = []
    groups = shared(context.step.prompts)
    if (
        groups
        and all(len(group) == 2 for group in groups.values())
        and all(p is not None for p in context.step.prompts)
    ):
        ways.append({a: b for pair in groups.values() for a, b in (pair, pair[::-1])})
    if count % 2 == 0:
        half = count // 2
        ways += [{i: (i + half) % count for i in range(count)}, {i: i ^ 1 for i in range(count)}]
        ways += _by_call(context)
    return ways


def _by_call(context: Context) -> list[dict[int, int]]:
    """Return the row in the other half of each forward pass."""
    partner: dict[int, int] = {}
    calls: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(context.step.rows):
        calls.setdefault((row.row.rank, row.row.call), []).append(index)
    for members in calls.values():
        if len(members) % 2:
            return []
        half = len(members) // 2
        partner |= {a: b for k, a in enumerate(members) for b in (members[(k + half) % len(members)],)}
    return [partner]


def opposite(context: Context, row: int, other: int, unit: str) -> bool:
    """Return whether two rows are pushed apart by as much, within their errors."""
    sizes = [1.0, 1.0] if unit == "token" else [float(len(context.step.rows[k].completion)) for k in (row, other)]
    weights, errors = zip(*(weight(context, k) for k in (row, other)), strict=True)
    apart = abs(sum(value * size for value, size in zip(weights, sizes, strict=True)))
    room = np.hypot(*(error * size for error, size in zip(errors, sizes, strict=True)))
    return bool(apart <= 2 * context.tokens.quantile * room)


def weight(context: Context, row: int) -> tuple[float, float]:
    """Return the weight of a row's tokens and its error; of a row that weighs nothing, the mean of all its tokens."""
    step, known = context.step, float(context.step.weights[row])
    if known:
        return known, max(context.shape.errors.get(row, 0.0), step.fit.rounding * abs(known))
    seen = step.rows[row]
    places = seen.completion if len(seen.completion) else np.flatnonzero(seen.row.attended & (seen.row.columns >= 0))
    values, errors = step.of(row, step.own(row, places))
    if not len(values):
        return float("nan"), float("nan")
    trust = 1.0 / np.maximum(errors, 1e-300) ** 2
    return float((values * trust).sum() / trust.sum()), float(trust.sum() ** -0.5)


def prefix(context: Context, index: int) -> tuple[int, ...]:
    """Return the attended tokens before the first that trains: those of a pair are equal."""
    return tuple(_attended(context, index)[: _before(context, index)])


def alike(context: Context, first: int, second: int) -> bool:
    """Return whether two rows begin alike up to where they train.

    Where a row weighs little, its first tokens may be lost in their errors: then it begins where the other does.
    """
    if prefix(context, first) == prefix(context, second):
        return True
    if any(context.step.rows[row].begins != "coefficients" for row in (first, second)):
        return any(context.step.rows[row].begins == "unknown" for row in (first, second))
    start = common(context, first, second)
    return start > 0 and all(_agrees(context, row, start, _before(context, row)) for row in (first, second))


def common(context: Context, first: int, second: int) -> int:
    """Return the number of attended tokens with which both rows begin."""
    one, two = _attended(context, first), _attended(context, second)
    return next((k for k, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def _attended(context: Context, index: int) -> list[int]:
    row = context.step.rows[index].row
    return np.array(row.ids)[row.attended].tolist()  # type: ignore[no-any-return]


def _before(context: Context, index: int) -> int:
    """Return the number of attended tokens before the first that trains; 0 where none does."""
    row = context.step.rows[index]
    return int(row.row.attended[: row.begin or 0].sum())


def _agrees(context: Context, row: int, start: int, stop: int) -> bool:
    """Return whether the attended tokens of a row from one to another may have the row's weight, within their errors."""
    step, seen = context.step, context.step.rows[row].row
    columns = seen.columns[np.flatnonzero(seen.attended)[start:stop]]
    values, errors = step.fit.coefficients[columns], step.fit.errors[columns]
    return bool((np.abs(values - weight(context, row)[0]) <= context.tokens.quantile * errors).all())
