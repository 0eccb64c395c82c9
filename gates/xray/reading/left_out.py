"""Rows that were scored and have no part in the gradient: not even the KL that every other row has."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.shapes import Shape
from gates.xray.reading.words import plural, rows

FORMS = ("k3", "k2")  # whose gradient needs the reference alone
CLEAR = 4  # how many times its room the KL of a token must be, so that it would show
LEAST = 2  # tokens of some row that must show it
REMEDY = "add the gradients of all passes, or weigh such rows by an advantage of 0 and leave them their KL"


def readings(context: Context) -> list[Reading]:
    """Return the rows without an advantage and without the KL, where it would show."""
    shape = context.shape
    if not context.fitting or shape.form not in FORMS or shape.by_call or shape.beta <= 0:
        return []
    missing = _missing(context, shape)
    cut = {index for index, row in enumerate(context.step.rows) if row.truncated}
    if not missing or len(missing) == context.rows:
        return []
    name = rows(missing)
    sentence = (
        f"{name} {'has' if len(missing) == 1 else 'have'} neither advantage nor KL: "
        f"{'it is' if len(missing) == 1 else 'they are'} left out of the gradient"
    )
    because = "the KL of other rows would show in their tokens, and their coefficients are 0"
    numbers = {"rows": missing}
    if set(missing) == cut:
        return [Reading("left out", "read", f"{sentence}, as all that were cut off are", because, numbers=numbers)]
    sentence += _passes(context, missing)
    return [Reading("left out", "attention", sentence, because, REMEDY, numbers)]


def _missing(context: Context, shape: Shape) -> list[int]:
    """Return the rows whose tokens all weigh nothing, although a KL would show."""
    source = next((each for each in shapes.references(context.step) if each.name == shape.reference), None)
    if source is None:
        return []
    with np.errstate(over="ignore", invalid="ignore"):
        apart = context.step.update.log_probs - source.values
        penalty = shape.beta * shapes.FORMS[shape.form or ""](apart)
    counts = {index: _lacking(context, index, penalty, shape) for index in range(context.rows)}
    return [index for index, count in counts.items() if count] if max(counts.values()) >= LEAST else []


def _lacking(context: Context, index: int, penalty: Array, shape: Shape) -> int:
    """Return the tokens of a row in which the KL would show and does not; 0 where some token has a weight."""
    step = context.step
    places = step.own(index)
    values, errors = step.of(index, places)
    room = context.tokens.quantile * errors
    if not len(values) or (np.abs(values) > room).any():
        return 0
    wanted = penalty[step.rows[index].row.columns[places]]
    if shape.by_length:
        wanted = wanted / len(step.rows[index].completion)
    return int((np.abs(wanted) > CLEAR * room).sum())


def _passes(context: Context, missing: Collection[int]) -> str:
    """Return the forward passes that rows are all rows of; nothing where they are not, or where there is one pass."""
    calls = [(row.row.rank, row.row.call) for row in context.step.rows]
    theirs = {calls[row] for row in missing}
    if len(missing) != sum(call in theirs for call in calls):
        return ""
    count = len(set(calls))
    last = " but the last" if theirs == set(calls) - {calls[-1]} else ""
    return f", as all rows of {len(theirs)} of {plural(count, 'forward pass', 'forward passes')}{': all' + last if last else ''}"
