"""Old log-probs that are not the old policy's: of the token before or after, of other rows, or of a pass that attended to padding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.shapes import Shape, Source
from gates.xray.reading.tokens import Tokens
from gates.xray.reading.words import plural
from gates.xray.step import PADDED, Step

SPARE = 4  # trained tokens beyond one a row that must agree: each has five digits, so that one is none's by chance
MOST = 64  # rows that are tried in other orders
LATE = "the log-probs of the tokens before them (late by one)"
EARLY = "the log-probs of the tokens after them (early by one)"
PAD = "a pass that attended to padding"


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step], known: Collection[str]) -> list[Shape]:
    """Return shapes whose ratio divides by mistaken old log-probs.

    Args:
        step: the update.
        tokens: that decide.
        earlier: updates before it.
        known: mistakes of earlier updates; a KL beside the ratio is looked for with these only.
    """
    sources = list(_sources(step, earlier))
    plain = [shape for source in sources if (shape := shapes.to(step, tokens, source)) and agrees(tokens, shape)]
    if plain:
        return plain
    again = [source for source in sources if source.name in known]
    if not again:
        return []
    shaped = shapes.candidates(step, tokens, earlier, again)
    return [shape for shape in shaped if shape.old is not None and agrees(tokens, shape)]


def agrees(tokens: Tokens, shape: Shape) -> bool:
    """Return whether a shape fits, on more tokens than it has unknowns, and no token is off where no bound cuts."""
    off = tokens.zero if shape.form is None else shape.clipped
    rows = len(set(tokens.row[~off].tolist()))
    if shape.misfit > tokens.quantile or (~off).sum() < rows + SPARE + (shape.form is not None):
        return False
    weights = np.array([shape.weights[row] for row in tokens.rows])[tokens.index]
    inside = np.where(weights < 0, shape.ratio < 1, shape.ratio > 1) & (weights != 0)
    return not (off & inside).any()


def _sources(step: Step, earlier: Sequence[Step]) -> Iterator[Source]:
    """Yield the mistaken old log-probs that are tried."""
    for scorer, values in step.update.scored:
        if scorer.by == PADDED:
            yield from (Source(PAD, _filled(values, policy)) for policy in _policies(step, earlier))
    for values in _policies(step, earlier):
        for name, toward in ((LATE, -1), (EARLY, 1)):
            for first in ("own", "slot", "zero"):
                yield Source(name, _neighbours(step, values, toward, first))
        yield from _of_other_rows(step, values)


def _policies(step: Step, earlier: Sequence[Step]) -> list[Array]:
    """Return the log-probs that the old policy may have: this policy's, and those that were scored or recorded before."""
    return [step.update.log_probs, *(source.values for source in shapes.olds(step, earlier))]


def _filled(values: Array, otherwise: Array) -> Array:
    return np.where(np.isfinite(values), values, otherwise)


def _neighbours(step: Step, values: Array, toward: int, first: str) -> Array:
    """Return for each token what its neighbour has; the token at the edge of the completion has its own, the slot's, or 0."""
    moved = np.full(len(values), np.nan)
    for row in step.rows:
        columns = row.row.columns[row.completion]
        if not len(columns):
            continue
        edge, inner = (columns[0], slice(1, None)) if toward < 0 else (columns[-1], slice(None, -1))
        place = int(row.completion[0] if toward < 0 else row.completion[-1]) + toward
        slot = int(row.row.columns[place]) if 0 <= place < len(row.row.columns) else -1
        moved[columns[inner]] = values[np.roll(columns, -toward)][inner]
        own = values[edge]
        moved[edge] = {"own": own, "slot": values[slot] if slot >= 0 else own, "zero": 0.0}[first]
    return moved


def _of_other_rows(step: Step, values: Array) -> Iterator[Source]:
    """Yield what rows have in another order: some rows on, or from the last to the first; 0 where a row ends sooner."""
    count = len(step.rows)
    orders = {
        f"the log-probs of other rows, {plural(by, 'row')} on": np.roll(np.arange(count), -by) for by in range(1, count)
    }
    orders["the log-probs of the rows in reverse order"] = np.arange(count)[::-1]
    for name, order in orders.items() if 1 < count <= MOST else ():
        moved = np.full(len(values), np.nan)
        for row, other in enumerate(order.tolist()):
            columns, others = (step.rows[k].row.columns[step.rows[k].completion] for k in (row, other))
            both = min(len(columns), len(others))
            moved[columns] = 0.0
            moved[columns[:both]] = values[others[:both]]
        yield Source(name, moved)
