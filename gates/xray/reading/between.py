"""How rows weigh against each other: mean of row means, token mean, or a constant divisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.model import Array
from gates.xray.reading import objective
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural, some
from gates.xray.step import shared

WAYS = {
    "row mean": "each row is averaged over its tokens first: its tokens weigh 1/length",
    "token mean": "a token weighs the same in short and long rows: token mean of the step, or a constant divisor",
    "micro-batch mean": "each forward pass is averaged over its own tokens, so a token weighs more in a pass with few",
}
NOTE = "gates_note(advantages=…) would tell"


@dataclass(frozen=True)
class Rows:
    """Weights of rows and their errors, under one way to divide."""

    way: str
    values: Array
    errors: Array


def readings(context: Context) -> list[Reading]:
    """Return how rows weigh."""
    kind = objective.kind(context)
    if not context.fitting or not kind:
        return []
    if kind == "preference":
        return _pairs(context, objective.readings(context)[0].numbers["pairs"])
    ways = list(_ways(context))
    advantages = _noted(context)
    if advantages is not None:
        return [_decided(context, ways, lambda way: _proportional(way, advantages), "advantages of the note")]
    if kind == "supervised":
        ones = np.ones(context.rows)
        return [_decided(context, ways, lambda way: _proportional(way, ones), "every row is pushed alike")]
    reading = _decided(context, ways, lambda way: _sums_to_zero(context, way), "advantages of a group sum to 0")
    return [] if context.trained_before and reading.kind != "read" else [reading]  # ratios of rows act as well


def _weights(context: Context) -> tuple[Array, Array]:
    """Return the weight of each row and its error; NaN where it has no token of its own."""
    values, errors = np.full(context.rows, np.nan), np.full(context.rows, np.nan)
    for first, weight in context.shape.weights.items():
        for row in context.step.alike[first]:
            values[row] = weight
            errors[row] = max(context.shape.errors[first], context.step.fit.rounding * abs(weight))
    return values, errors


def trained(context: Context) -> Array:
    """Return the number of tokens of each completion, without those that are known not to train."""
    step = context.step
    return np.array(
        [sum(step.state(i, int(k)) != "still" for k in row.completion) for i, row in enumerate(step.rows)], dtype=float
    )


def _ways(context: Context) -> list[Rows]:
    weights, errors = _weights(context)
    whole = np.array([len(row.completion) for row in context.step.rows], dtype=float)
    without = trained(context)
    ways = [("token mean", np.ones(context.rows)), ("row mean", without)]
    with_closing = whole + np.array([row.hidden for row in context.step.rows])
    ways += [("row mean", lengths) for lengths in (whole, with_closing) if (lengths != without).any()]
    calls = [(row.row.rank, row.row.call) for row in context.step.rows]
    by_call = np.array([sum(n for n, other in zip(without, calls, strict=True) if other == call) for call in calls])
    if len(set(by_call.tolist())) > 1 and len(set(calls)) < context.rows:
        ways.append(("micro-batch mean", by_call))
    return [Rows(name, weights * divisor, errors * divisor) for name, divisor in ways]


def _decided(context: Context, ways: Sequence[Rows], holds: Callable[[Rows], bool | None], law: str) -> Reading:
    """Return the only way that a law holds for; None of a law means that no rows can be compared."""
    lengths = trained(context)
    answers = [(way.way, holds(way)) for way in ways]
    fitting = list(dict.fromkeys(name for name, answer in answers if answer))
    weights, _ = _weights(context)
    numbers = {
        "lengths": lengths.astype(int).tolist(),
        "fitting": fitting,
        "weights": [float(w) if np.isfinite(w) else None for w in weights],
    }
    if all(answer is None for _, answer in answers):
        sentence = "how rows weigh against each other does not show: no two rows of a prompt have weights of their own"
        return Reading(
            "between rows", "cannot tell", sentence, law, f"record several rows a prompt, or {NOTE}", numbers
        )
    if len(fitting) == 1:
        return Reading(
            "between rows",
            "read",
            WAYS[fitting[0]],
            f"{law}, and only so do these",
            numbers={**numbers, "way": fitting[0]},
        )
    if fitting:
        alike = len(set(lengths.tolist())) == 1
        why = f"all rows have {plural(int(lengths[0]), 'token')}" if alike else "the rows do not tell them apart"
        sentence = f"{some(fitting)} look alike: {why}"
        return Reading("between rows", "cannot tell", sentence, law, "record rows of different lengths", numbers)
    sentence = (
        "rows weigh in no way that makes a group's advantages sum to 0"
        if "sum" in law
        else "rows weigh by neither their lengths nor their tokens"
    )
    remedy = f"advantages without a mean of the group, scaled over the batch, or weights of rows: {NOTE}"
    return Reading("between rows", "cannot tell", sentence, law, remedy, numbers)


def _noted(context: Context) -> Array | None:
    """Return the advantages that the script noted for the rows of this update."""
    for note in context.recording.of("note", context.step.update.number)[::-1]:
        values = note.get("advantages")
        if isinstance(values, list) and len(values) == context.rows:
            return np.array(values, dtype=float)
    return None


def _proportional(way: Rows, advantages: Array) -> bool | None:
    """Return whether weights are the advantages times one number."""
    known = np.isfinite(way.values) & np.isfinite(advantages)
    if (np.abs(advantages[known]) > 0).sum() < 2:
        return None
    values, errors, wanted = way.values[known], np.maximum(way.errors[known], 1e-300), advantages[known]
    factor = float((values * wanted / errors**2).sum() / (wanted**2 / errors**2).sum())
    return bool((np.abs(values - factor * wanted) <= 8 * errors).all())


def _sums_to_zero(context: Context, way: Rows) -> bool | None:
    """Return whether the weights of every group sum to 0."""
    answers = []
    for members in _groups(context):
        values, errors = way.values[members], way.errors[members]
        if len(members) > 1 and np.isfinite(values).all() and (values != 0).sum() > 1:
            answers.append(bool(abs(values.sum()) <= context.tokens.quantile * np.sqrt((errors**2).sum())))
    return all(answers) if answers else None


def _groups(context: Context) -> list[list[int]]:
    groups = shared(context.step.prompts)
    if not groups or any(prompt is None for prompt in context.step.prompts):
        return [list(range(context.rows))]
    return list(groups.values())


def _pairs(context: Context, pairs: Sequence[Sequence[int]]) -> list[Reading]:
    """Return whether all pairs are pushed as strongly."""
    weights, errors = _weights(context)
    first = np.array([pair[0] for pair in pairs])
    numbers: Mapping[str, object] = {"pairs": [float(weight) for weight in weights[first]]}
    if len(pairs) < 2:
        return []
    alike = bool((np.abs(weights[first] - weights[first].mean()) <= 2 * context.tokens.quantile * errors[first]).all())
    sentence = (
        "all pairs weigh the same"
        if alike
        else "pairs weigh unlike: by how far the row that is pushed up is preferred already"
    )
    if alike:
        sentence += ", as where policy and reference are equal"
    return [Reading("between rows", "read", sentence, "the weight of each pair's tokens", numbers=dict(numbers))]
