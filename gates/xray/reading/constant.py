"""The sentence on a KL that weighs the tokens of a row alike: by k1, or of the sums of rows."""

from __future__ import annotations

import numpy as np

from gates.xray.reading import row_terms, shapes
from gates.xray.reading.between import trained
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.row_terms import RowTerm
from gates.xray.reading.shapes import Shape
from gates.xray.reading.words import number, rows, some

K1 = "a constant on every token, as a KL by k1 has"
REMEDY = "k1 belongs into the reward; in the loss its gradient is 0 on average: take k2 or k3 there"


def of_tokens(context: Context, shape: Shape, *, known: bool) -> Reading:
    """Return the k1 beside a ratio of tokens; `known` is whether its average shows."""
    clip = context.step.update.document.clip
    factor = clip.factor if clip else 1.0
    error = context.tokens.quantile * shape.beta_error / factor
    term = RowTerm(
        (shapes.CONSTANT,),
        row_terms.scored(context),
        shape.by_length if known else None,
        shape.beta / factor,
        error,
        (),
    )
    return _constant(context, term, "equal weights and ratios do not fit, a constant beside the ratio does")


def readings(context: Context) -> list[Reading]:
    """Return the term that rows have, or may have."""
    if (term := row_terms.of(context)) is not None:
        return [_of_rows(context, term)]
    maybe = row_terms.perhaps(context)
    return [] if maybe is None else [_perhaps(context, maybe)]


def _of_rows(context: Context, term: RowTerm) -> Reading:
    """Return the term that was found between rows."""
    if term.forms == (shapes.CONSTANT,):
        return _constant(context, term, "without it the coefficients of each prompt's rows sum to 0, in every update")
    value, error = term.size * context.rows, term.error * context.rows
    average = "" if term.by_length is None else ", averaged within rows" if term.by_length else ""
    sentence = (
        f"KL to {some(term.references)} by {' or '.join(term.forms)} of the sums of rows, β = {number(value)}{average}; "
        f"of {rows(term.alone)} it is all that is left"
    )
    because = "these rows' coefficients are its gradient times one number; β holds if rows are averaged"
    numbers = {**_numbers(term, value, error), "rows": list(term.alone)}
    return Reading("KL", "read", sentence, because, numbers=numbers)


def _perhaps(context: Context, term: RowTerm) -> Reading:
    """Return that a constant may be on every token: too few prompts agree on it."""
    sentence = (
        f"whether there is a KL by k1 does not show: a constant of {number(term.size)} on every token would be one"
    )
    because = "without it the coefficients of each prompt's rows sum to 0, in every update, to their precision"
    remedy = "record more updates (--updates 4), or rows of more prompts"
    return Reading("KL", "cannot tell", sentence, because, remedy, _numbers(term, term.size * context.rows, term.error))


def _constant(context: Context, term: RowTerm, because: str) -> Reading:
    """Return that every token has a constant coefficient more."""
    count, tokens = context.rows, float(trained(context).sum())
    size = abs(term.size)
    summed, averaged = number(size * count), number(size * tokens)
    beta = (
        f"{summed}, averaged within rows"
        if term.by_length
        else f"{summed} if rows are summed, {averaged} if tokens are averaged"
    )
    numbers = _numbers(term, term.size * (tokens if term.by_length is False else count), term.error * count)
    if term.size < 0:
        sentence = (
            f"the loss pushes every token up by a constant, as a KL by k1 with the opposite sign does: β = {beta}"
        )
        return Reading("KL", "attention", sentence, because, REMEDY, numbers)
    if not term.references:
        return Reading("KL", "read", f"{K1}: β = {beta}", because, numbers=numbers)
    sentence = f"KL to {some(term.references)} by k1, β = {beta}: a constant on every token, whatever the reference"
    if len(term.alone) == len(context.shape.weights):
        sentence += "; nothing else trains, since all advantages are 0"
    return Reading("KL", "attention", sentence, because, REMEDY, numbers)


def _numbers(term: RowTerm, value: float, error: float) -> dict[str, object]:
    means = {True: ["within rows"], False: ["over tokens"], None: ["over tokens", "within rows"]}[term.by_length]
    return {
        "beta": value if np.isfinite(value) else None,
        "error": error,
        "forms": list(term.forms),
        "references": list(term.references),
        "averaged": means,
        "constant": term.size,
    }
