"""A KL whose reference log-probs are those of other rows, as where the reference scored the rows in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.shapes import Shape, Source
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step

OTHERS = "in other rows"  # behind the name of the reference
FORMS = ("k3", "k2")
MOST = 64  # rows that are tried in other orders
SPARE = 2  # tokens of a row beyond its two unknowns: each has five digits
LEAST = 3  # rows that must agree on β
CLEAR = 1e-2  # relative error of β up to which a row says it

FEW = 2  # tokens up to which a row may agree with none
UNKNOWN = -1  # of a row whose tokens are too few to tell

Order = tuple[int, ...]  # for each row, the row whose log-probs it is compared with


@dataclass(frozen=True)
class Reordered:
    """Shapes with a KL to the log-probs of other rows.

    Attributes:
        fitting: the shapes.
        order: of the rows.
        by_completion: whether rows are compared from their completions on; else from their first positions.
        tokens: that have a counterpart in the other row.
    """

    fitting: tuple[Shape, ...]
    order: Order
    by_completion: bool
    tokens: Tokens


@dataclass(frozen=True)
class _Row:
    """A row's tokens that decide, and for each other row the log-probs at the same places.

    Attributes:
        values, errors: coefficients.
        policy: log-probs.
        against: (rows, tokens), NaN where a row has none there.
        unit: what the KL of a token is divided by.
    """

    values: Array
    errors: Array
    policy: Array
    against: Array
    unit: float


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step], known: Sequence[Reordered]) -> Reordered | None:
    """Return the shapes of a KL to other rows' log-probs, with the orders of earlier updates or a new one."""
    if not 1 < len(step.rows) <= MOST:
        return None
    for reference in shapes.references(step):
        for before in known:
            if len(before.order) == len(step.rows):
                placed = _placed(step, reference.values, by_completion=before.by_completion)
                if (seen := _joint(step, tokens, earlier, reference, before, placed)) is not None:
                    return seen
        for by_completion, form, by_length in product((False, True), FORMS, (False, True)):
            placed = _placed(step, reference.values, by_completion=by_completion)
            at = _at(step, tokens, by_completion=by_completion)
            listed = {row: _row(step, tokens, row, placed[:, at], by_length=by_length) for row in tokens.rows}
            order = _order(listed, tokens, shapes.FORMS[form])
            if order is None:
                continue
            start = Reordered((), order, by_completion, tokens)
            if (seen := _joint(step, tokens, earlier, reference, start, placed)) is not None:
                return seen
    return None


def _placed(step: Step, values: Array, *, by_completion: bool) -> Array:
    """Return the log-probs of all rows at their places, (rows, places): from the first position on, or from completions on."""
    width = max(len(row.row.ids) for row in step.rows)
    placed = np.full((len(step.rows), width), np.nan)
    for index, row in enumerate(step.rows):
        places = np.flatnonzero(row.row.columns >= 0)
        shift = int(row.completion[0]) if by_completion and len(row.completion) else 0
        places = places[places >= shift]
        placed[index, places - shift] = values[row.row.columns[places]]
    return placed


def _at(step: Step, tokens: Tokens, *, by_completion: bool) -> Array:
    """Return the places of tokens in their rows."""
    starts = np.array([row.completion[0] if by_completion and len(row.completion) else 0 for row in step.rows])
    return np.asarray(tokens.position - starts[tokens.row])


def _row(step: Step, tokens: Tokens, row: int, against: Array, *, by_length: bool) -> _Row:
    own = tokens.row == row
    unit = float(len(step.rows[row].completion)) if by_length else 1.0
    policy = step.update.log_probs[tokens.column[own]]
    return _Row(tokens.value[own], tokens.error[own], policy, against[:, own], unit)


def _order(rows: dict[int, _Row], tokens: Tokens, form: Callable[[Array], Array]) -> Order | None:
    """Return whose log-probs each row is compared with, None where rows do not agree on β."""
    said = [
        (index, beta, error) for index, row in rows.items() for beta, error in _betas(row, form, tokens.quantile, index)
    ]
    near = [
        {index for index, value, room in said if abs(value - beta) <= tokens.quantile * (room + error)}
        for _, beta, error in said
    ]
    agreeing = max(near, key=len, default=set())
    if len(agreeing) < LEAST:
        return None
    _, beta, _ = min(
        (each for each, others in zip(said, near, strict=True) if len(others) == len(agreeing)),
        key=lambda each: each[2] / abs(each[1]),
    )
    count = len(next(iter(rows.values())).against)
    order = [UNKNOWN] * count
    for index, row in rows.items():
        order[index] = _partner(row, beta / row.unit, form, tokens.quantile)
        if order[index] == UNKNOWN and len(row.values) > FEW:
            return None
    return _completed(order)


def _completed(order: Sequence[int]) -> Order:
    """Return an order with the only row that is left for the only one whose partner is not known."""
    left = set(range(len(order))) - set(order)
    last = left.pop() if len(left) == 1 and order.count(UNKNOWN) == 1 else UNKNOWN
    return tuple(last if other == UNKNOWN else other for other in order)


def _penalty(row: _Row, other: int, form: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return which tokens of a row have a counterpart in another one, and the gradient of the KL there."""
    known = np.isfinite(row.against[other])
    with np.errstate(over="ignore", invalid="ignore"):
        return known, form(row.policy[known] - row.against[other][known])


def _betas(row: _Row, form: Callable[[Array], Array], quantile: float, own: int) -> Iterator[tuple[float, float]]:
    """Yield the strength of the KL, and its error, for each other row that explains the tokens of this one."""
    for other in range(len(row.against)):
        known, penalty = _penalty(row, other, form)
        if other == own or known.sum() < 2 + SPARE or not np.isfinite(penalty).all():
            continue
        trust = 1.0 / row.errors[known]
        columns = np.stack([trust, penalty * trust], axis=1)
        solved, _, rank, _ = np.linalg.lstsq(columns, row.values[known] * trust, rcond=None)
        left = np.abs(row.values[known] * trust - columns @ solved)
        if rank < 2 or left.max() > quantile:
            continue
        error = float(np.sqrt(np.linalg.inv(columns.T @ columns)[1, 1]))
        if error < CLEAR * abs(solved[1]):
            yield float(solved[1]) * row.unit, error * row.unit


def _partner(row: _Row, beta: float, form: Callable[[Array], Array], quantile: float) -> int:
    """Return the row whose log-probs explain most tokens of this one beside a weight."""
    best, most, least = UNKNOWN, 1, np.inf
    for other in range(len(row.against)):
        known, penalty = _penalty(row, other, form)
        if known.sum() < max(2, most) or not np.isfinite(penalty).all():
            continue
        values, trust = row.values[known] - beta * penalty, row.errors[known] ** -2
        left = float((np.abs(values - np.average(values, weights=trust)) / row.errors[known]).max())
        if left <= 2 * quantile and (known.sum() > most or left < least):
            best, most, least = other, int(known.sum()), left
    return best


def _joint(
    step: Step,
    tokens: Tokens,
    earlier: Sequence[Step],
    reference: Source,
    before: Reordered,
    placed: Array,
) -> Reordered | None:
    """Return the shapes that fit all tokens with a counterpart, rows compared in one order."""
    moved = np.full(len(reference.values), np.nan)
    at = _at(step, tokens, by_completion=before.by_completion)
    order = np.array(before.order)[tokens.row]
    moved[tokens.column] = np.where(order == UNKNOWN, np.nan, placed[order, at])
    known = np.isfinite(moved[tokens.column])
    if all(other in {row, UNKNOWN} for row, other in enumerate(before.order)) or not known.any():
        return None
    whole = tokens.taken(known)
    source = Source(f"{reference.name} {OTHERS}", moved)
    candidates = shapes.candidates(step, whole, earlier, against=[source])
    shaped = [shape for shape in candidates if shape.form in FORMS and shape.misfit <= whole.quantile]
    if not shaped or len(whole.value) < len(whole.rows) + 1 + 2 * SPARE:
        return None
    return Reordered(tuple(shaped), before.order, before.by_completion, whole)
