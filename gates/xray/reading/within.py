"""How the tokens of one row weigh against each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.model import Array
from gates.xray.reading import cycle, objective, own
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.shapes import Shape
from gates.xray.reading.tokens import Tokens
from gates.xray.reading.words import number, share

PRECISE = "each token is compared with the typical one of its row, within its standard error"
ALIKE = 3  # rows that begin with one weight, if that is not by chance


def readings(context: Context) -> list[Reading]:
    """Return how tokens weigh within rows."""
    tokens = context.tokens
    several = [row for row in tokens.rows if (~tokens.zero & (tokens.row == row)).sum() > 1]
    if not several:
        if not context.step.fit.size:
            return []
        remedy = "record rows that differ from their second token on, with a reward that is not the mean of their group"
        sentence = "no row with a weight has two tokens of its own"
        return [Reading("within rows", "cannot tell", sentence, "", remedy)]
    precision = _precision(tokens)
    because = f"a row's tokens are compared with its typical one, to {share(precision)} of it"
    shape = context.shape
    numbers = {"precision": precision, "misfit": shape.misfit, "rows": len(several)}
    if not context.fitting:
        return [_unlike(context, because, numbers)]
    if shape.form is not None or shape.own:
        return [_with_kl(context, because, numbers)]
    if shape.old is not None:
        sentence = f"the tokens of a row weigh by {_ratio(shape)} to {shape.old}"
        return [Reading("within rows", "read", sentence, because, numbers={**numbers, "weights": "ratio"})]
    sentence = f"the trained tokens of a row weigh the same (to {share(precision)})"
    return [Reading("within rows", "read", sentence, because, numbers={**numbers, "weights": "equal"})]


COPIES = "each row equals another one, and only the sum of their weights shows: a bound may act on one of them"


def _precision(tokens: Tokens) -> float:
    trained = ~tokens.zero
    return float(np.median(tokens.quantile * tokens.error[trained] / np.abs(tokens.value[trained])))


def _with_kl(context: Context, because: str, numbers: Mapping[str, object]) -> Reading:
    """Return that tokens weigh by a KL, or by their own log-prob."""
    shape = context.shape
    if shape.own:
        return own.reading(shape, numbers)
    base = _ratio(shape) if shape.old else "the weight of the row"
    sentence = f"the tokens of a row weigh by {base} and a KL"
    return Reading("within rows", "read", sentence, because, numbers={**numbers, "weights": "kl"})


def _ratio(shape: Shape) -> str:
    return "the inverse of their ratio" if shape.inverse else "their ratio"


def _unlike(context: Context, because: str, numbers: Mapping[str, object]) -> Reading:
    """Return the reading of rows that nothing recorded explains: a discount by position, or unlike."""
    discount = _discount(context.tokens)
    if discount is not None:
        sentence = f"the tokens of a row weigh by position: each {number(discount)} times the one before"
        return Reading(
            "within rows",
            "attention",
            sentence,
            because,
            numbers={**numbers, "weights": "position", "factor": discount},
        )
    if (level := _likelihood(context)) is not None:
        sentence = f"the tokens of a row have two weights: {number(level)} on its first ones, alike in all rows, as where a likelihood of all tokens is added to a loss of completions"
        return Reading("within rows", "read", sentence, because, numbers={**numbers, "weights": "two", "level": level})
    if (period := cycle.period(context)) is not None:
        return _in_turn(period, because, numbers)
    if context.only_copies:
        sentence = f"tokens of a row weigh unlike; {COPIES}"
        return Reading("within rows", "cannot tell", sentence, because, numbers={**numbers, "weights": "unlike"})
    tokens = context.tokens
    trained = ~tokens.zero
    wide = max(
        float(
            np.ptp(tokens.value[trained & (tokens.row == row)])
            / np.median(np.abs(tokens.value[trained & (tokens.row == row)]))
        )
        for row in tokens.rows
        if (trained & (tokens.row == row)).any()
    )
    sentence = f"the tokens of a row weigh unlike (up to {share(wide)} apart), and no recorded ratio or KL explains it"
    remedy = "log-probs that came from another program (a server that samples) are not recorded; rewards or weights a token neither"
    if objective.sampled(context) and not context.trained_before & set(context.step.update.keys):
        sentence += ": ratios to this policy would be 1 in the first update of these rows"
    return Reading(
        "within rows", "attention", sentence, because, remedy, {**numbers, "weights": "unlike", "apart": wide}
    )


def _in_turn(period: int, because: str, numbers: Mapping[str, object]) -> Reading:
    """Return that the tokens of a row weigh by the advantages of several rows."""
    sentence = (
        f"the tokens of a row weigh by the values of {period} rows in turn, and each comes back after {period} tokens: "
        "the advantages are laid out in another order than the tokens (repeat in place of repeat_interleave)"
    )
    remedy = "give each row's advantage to all of its tokens: advantages[:, None]"
    more = {**numbers, "weights": "in turn", "period": period}
    return Reading("within rows", "attention", sentence, because, remedy, more)


def _likelihood(context: Context) -> float | None:
    """Return the weight that the first tokens of rows have alike, where every later token of a row has another one; else None.

    Tokens that rows share count, and those that weigh nothing do not.
    """
    fit, levels, errors = context.step.fit, [], []
    for row in context.step.rows:
        columns = row.row.columns[row.row.attended & (row.row.columns >= 0)]
        columns = columns[np.isfinite(fit.coefficients[columns]) & ~fit.zero(columns)]
        if not len(columns):
            continue
        values, room = fit.coefficients[columns], 2 * context.tokens.quantile * fit.errors[columns]
        count = int((np.abs(values - values[-1]) > np.maximum(room, room[-1])).sum())
        if (np.abs(values[:count] - values[0]) > np.maximum(room[:count], room[0])).any():
            return None
        if count:
            levels.append(values[0])
            errors.append(room[0])
    if len(levels) < ALIKE or np.ptp(levels) > max(errors):
        return None
    return float(np.median(levels))


def _discount(tokens: Tokens) -> float | None:
    """Return the factor from one token to the next, if one factor fits all rows."""
    trained = ~tokens.zero
    slope = _slope(tokens, trained)
    if slope is None:
        return None
    left = tokens.value * np.exp(-slope * tokens.position)
    error = tokens.error * np.exp(-slope * tokens.position)
    for row in tokens.rows:
        here = trained & (tokens.row == row)
        if not here.any():
            continue
        weight = float((left[here] / error[here] ** 2).sum() / (1.0 / error[here] ** 2).sum())
        if (np.abs(left[here] - weight) > 2 * tokens.quantile * error[here]).any():
            return None
    return float(np.exp(slope))


def _slope(tokens: Tokens, trained: Array) -> float | None:
    """Return the slope of log |coefficient| in the position, the same in all rows; None where signs differ in a row."""
    above = below = 0.0
    for row in tokens.rows:
        here = trained & (tokens.row == row)
        if here.sum() < 2:
            continue
        values = tokens.value[here]
        if (values > 0).any() and (values < 0).any():
            return None
        sizes = np.log(np.abs(values))
        weight = (values / tokens.error[here]) ** 2
        at = tokens.position[here] - np.average(tokens.position[here], weights=weight)
        above += float((weight * at * (sizes - np.average(sizes, weights=weight))).sum())
        below += float((weight * at * at).sum())
    return above / below if below else None
