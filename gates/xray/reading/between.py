"""How rows weigh against each other: mean of row means, token mean, or a constant divisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.fit import quantile
from gates.xray.reading import objective, one_way, rounded, row_terms
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Kind, Reading
from gates.xray.reading.trains import state
from gates.xray.reading.words import number, plural, some
from gates.xray.step import shared

WAYS = {
    "row mean": "each row is averaged over its tokens first: its tokens weigh 1/length",
    "token mean": "a token weighs the same in short and long rows: token mean of the step, or a constant divisor",
    "rank mean": "each rank is averaged over its own tokens, so a token weighs more on a rank with few",
    "micro-batch mean": "each forward pass is averaged over its own tokens, so a token weighs more in a pass with few",
    "row mean twice": "each row is divided by its length twice: its tokens weigh 1/length²",
    "mean of the whole row": "each row is averaged over its prompt and its completion together: its tokens weigh "
    "1/(prompt + completion), so rows of long prompts weigh less",
}
SELDOM = {  # ways that are tried where nothing that is meant fits, and the remedy
    "row mean twice": "leave one of both out: of the advantage, or of the loss",
    "mean of the whole row": "divide by the mask of the completion, not by the attention mask",
}
TOKENS = "tokens of the step"
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
    unknown = (context.shape.old or "").startswith(rounded.BY)  # each row's ratio has a constant that is not known
    if not context.fitting or kind in {"", "unpaired"} or unknown:
        return []
    if kind == "preference":
        numbers = objective.readings(context)[0].numbers
        return _pairs(context, numbers["pairs"], by_row=numbers["unit"] == "row")
    ways = list(ways_of(context))
    advantages = _noted(context)
    if advantages is not None:
        return [
            _decided(context, ways, lambda way: _proportional(way, advantages), "advantages of the note", advantages)
        ]
    if kind == "supervised":
        ones = np.ones(context.rows)
        return [_decided(context, ways, lambda way: _proportional(way, ones), "every row is pushed alike", ones)]
    reading = _decided(context, ways, lambda way: sums_to_zero(context, way), "advantages of a group sum to 0")
    told = reading.kind == "read" or bool(reading.numbers.get("fitting"))
    alike = context.trained_before or row_terms.of(context) is not None  # ratios of rows, or their KL, act as well
    silent = alike or not objective.sampled(context)  # or no law holds
    if told or silent:
        return [reading] if told else []
    return [_pushed(context, ways, reading)]


def _pushed(context: Context, ways: Sequence[Rows], reading: Reading) -> Reading:
    """Return the reading of rows that do not sum to 0, with the way that they are pushed if it is one."""
    known = all(prompt is not None for prompt in context.step.prompts)
    if not known or all(sums_to_zero(context, way) is None for way in ways):
        return reading
    one = one_way.reading(context.weights, groups_of(context))
    return one or one_way.on_balance(reading, [way.values for way in ways], groups_of(context))


def weights_of(context: Context) -> tuple[Array, Array]:
    """Return the weight of each row and its error; NaN where it has no token of its own."""
    values, errors = np.full(context.rows, np.nan), np.full(context.rows, np.nan)
    for first, weight in context.shape.weights.items():
        for row in context.step.alike[first]:
            values[row] = weight
            errors[row] = max(context.shape.errors[first], context.step.fit.rounding * abs(weight))
    return values - row_terms.constants(context), errors


def trained(context: Context) -> Array:
    """Return the number of tokens of each completion, without those that are known not to train."""
    rows = enumerate(context.step.rows)
    return np.array([sum(state(context, i, int(k)) != "still" for k in row.completion) for i, row in rows], dtype=float)


def ways_of(context: Context) -> list[Rows]:
    """Return the rows under each way to divide that is tried first."""
    weights, errors = weights_of(context)
    whole = np.array([len(row.completion) for row in context.step.rows], dtype=float)
    without = trained(context)
    ways = [("token mean", np.ones(context.rows)), ("row mean", without)]
    with_closing = whole + np.array([row.hidden for row in context.step.rows])
    ways += [("row mean", lengths) for lengths in (whole, with_closing) if (lengths != without).any()]
    calls = [(row.row.rank, row.row.call) for row in context.step.rows]
    for name, members in (("micro-batch mean", calls), ("rank mean", [rank for rank, _ in calls])):
        totals = np.array([sum(without[k] for k, b in enumerate(members) if b == a) for a in members])
        if len(set(totals.tolist())) > 1 and len(set(members)) < context.rows:
            ways.append((name, totals))
    return [Rows(name, weights * divisor, errors * divisor) for name, divisor in ways]


def _seldom_meant(context: Context) -> list[Rows]:
    """Return rows divided by their lengths twice, or by those of their prompts too, where these differ."""
    weights, errors = weights_of(context)
    whole = np.array([len(row.completion) for row in context.step.rows], dtype=float)
    shown = np.array([int(row.row.attended.sum()) for row in context.step.rows], dtype=float)
    ways = [("row mean twice", length**2) for length in (trained(context), whole)]
    if not _prompts_train(context):
        ways += [("mean of the whole row", length) for length in (shown, shown - 1)]  # of all tokens, or of all scores
    return [Rows(name, weights * divisor, errors * divisor) for name, divisor in ways if len(set(divisor.tolist())) > 1]


def _prompts_train(context: Context) -> bool:
    """Return whether tokens of prompts train; a mean over prompt and completion is then one over what trains."""
    rows = enumerate(context.step.rows)
    return any(row.begin is None or "trains" in {state(context, i, int(k)) for k in row.prompt} for i, row in rows)


def _decided(
    context: Context,
    ways: Sequence[Rows],
    holds: Callable[[Rows], bool | None],
    law: str,
    advantages: Array | None = None,
) -> Reading:
    """Return the only way that a law holds for; None of a law means that no rows can be compared."""
    lengths = trained(context)
    answers = [(way.way, holds(way)) for way in ways]
    fitting = list(dict.fromkeys(name for name, answer in answers if answer))
    compared = any(answer is not None for _, answer in answers)
    if not fitting and compared:
        ways = _seldom_meant(context)
        answers = [(way.way, holds(way)) for way in ways]
        fitting = list(dict.fromkeys(name for name, answer in answers if answer))
    weights, _ = weights_of(context)
    numbers = {
        "lengths": lengths.astype(int).tolist(),
        "fitting": fitting,
        "weights": [float(w) if np.isfinite(w) else None for w in weights],
    }
    if not compared:
        sentence = "how rows weigh against each other does not show: no two rows of a prompt have weights of their own"
        return Reading(
            "between rows", "cannot tell", sentence, law, f"record several rows a prompt, or {NOTE}", numbers
        )
    if len(fitting) == 1:
        way = next(rows for rows, (_, answer) in zip(ways, answers, strict=True) if answer)
        return _read(context, way, advantages, law, numbers)
    if fitting:
        alike = len(set(lengths.tolist())) == 1
        why = f"all rows have {plural(int(lengths[0]), 'token')}" if alike else "the rows do not tell them apart"
        remedy = f"record rows of different lengths{'' if alike else ' in each forward pass'}"
        return Reading("between rows", "cannot tell", f"{some(fitting)} look alike: {why}", law, remedy, numbers)
    sentence = (
        "rows weigh in no way that makes a group's advantages sum to 0"
        if "sum" in law
        else "rows weigh by neither their lengths nor their tokens"
    )
    causes = "advantages without a mean of the group or scaled over the batch, weights of rows, or a KL by k1"
    remedy = f"{causes}: {NOTE}, and so would a further update"
    return Reading("between rows", "cannot tell", sentence, law, remedy, numbers)


def _noted(context: Context) -> Array | None:
    """Return the advantages that the script noted for the rows of this update."""
    for note in context.recording.of("note", context.step.update.number)[::-1]:
        values = note.get("advantages")
        if isinstance(values, list) and len(values) == context.rows and not any(isinstance(x, list) for x in values):
            return np.array(values, dtype=float)
    return None


def _factor(way: Rows, advantages: Array) -> tuple[float, float]:
    """Return the number by which advantages give the weights, and its error."""
    known = np.isfinite(way.values) & np.isfinite(advantages)
    values, errors, wanted = way.values[known], np.maximum(way.errors[known], 1e-300), advantages[known]
    strength = float((wanted**2 / errors**2).sum())
    return float((values * wanted / errors**2).sum()) / strength, strength**-0.5


def _proportional(way: Rows, advantages: Array) -> bool | None:
    """Return whether weights are the advantages times one number."""
    known = np.isfinite(way.values) & np.isfinite(advantages)
    if (np.abs(advantages[known]) > 0).sum() < 2:
        return None
    factor, _ = _factor(way, advantages)
    room = 2 * quantile(int(known.sum())) * way.errors[known]
    return bool((np.abs(way.values[known] - factor * advantages[known]) <= room).all())


def _read(context: Context, way: Rows, advantages: Array | None, law: str, numbers: Mapping[str, Any]) -> Reading:
    """Return the way, and the divisor where advantages are known."""
    because = f"{law}, and only so do these"
    if advantages is None or way.way in SELDOM:
        numbers = {**numbers, "way": way.way}
        kind: Kind = "attention" if way.way in SELDOM else "read"
        return Reading("between rows", kind, WAYS[way.way], because, SELDOM.get(way.way, ""), numbers)
    factor, error = _factor(way, advantages)
    clip = context.step.update.document.clip
    divisor = (clip.factor if clip else 1.0) / abs(factor)
    room = divisor * (2 * context.tokens.quantile * error / abs(factor) + context.step.fit.rounding)
    counts = _counts(context, way.way)
    named = next((words for words, count in counts.items() if abs(divisor - count) <= room), None)
    numbers = {**numbers, "way": way.way, "divisor": divisor, "divided_by": named}
    if way.way == "token mean":
        how = f"token mean: divided by the {named}" if named == TOKENS else f"a constant divisor, {number(divisor, 6)}"
        sentence = f"a token weighs the same in short and long rows ({how})"
        return Reading("between rows", "read", sentence, because, numbers=numbers)
    words, count = next(iter(counts.items()))
    if named is not None:
        return Reading("between rows", "read", WAYS[way.way], because, numbers=numbers)
    sentence = f"{WAYS[way.way]}; their sum is divided by {number(divisor, 6)}, not by the {count:g} {words}"
    return Reading("between rows", "attention", sentence, because, numbers=numbers)


def _counts(context: Context, way: str) -> Mapping[str, float]:
    """Return what a sum may be divided by, by its name."""
    calls = {(row.row.rank, row.row.call) for row in context.step.rows}
    counts: Mapping[str, Mapping[str, float]] = {
        "row mean": {"rows": context.rows},
        "rank mean": {"ranks": context.recording.world_size},
        "micro-batch mean": {"micro-batches": len(calls)},
        "token mean": {TOKENS: float(trained(context).sum())},
    }
    return counts[way]


def sums_to_zero(context: Context, way: Rows) -> bool | None:
    """Return whether the weights of every group sum to 0."""
    answers = []
    for members in groups_of(context):
        values, errors = way.values[members], way.errors[members]
        if len(members) > 1 and np.isfinite(values).all() and (values != 0).sum() > 1:
            answers.append(bool(abs(values.sum()) <= context.tokens.quantile * np.sqrt((errors**2).sum())))
    return all(answers) if answers else None


def groups_of(context: Context) -> list[list[int]]:
    """Return the rows of each prompt, or all rows where prompts are not known."""
    groups = shared(context.step.prompts)
    if not groups or any(prompt is None for prompt in context.step.prompts):
        return [list(range(context.rows))]
    return list(groups.values())


def _pairs(context: Context, pairs: Sequence[Sequence[int]], *, by_row: bool) -> list[Reading]:
    """Return whether all pairs are pushed as strongly: token by token, or row by row where rows are averaged over tokens."""
    weights, errors = weights_of(context)
    first = np.array([pair[0] for pair in pairs])
    sizes = np.array([_length(context, pair) if by_row else 1.0 for pair in pairs])
    numbers: Mapping[str, object] = {"pairs": [float(weight) for weight in weights[first]]}
    pushes, room = (weights[first] * sizes)[sizes > 0], (errors[first] * sizes)[sizes > 0]
    if len(pushes) < 2:
        return []
    alike = bool((np.abs(pushes - pushes.mean()) <= 2 * context.tokens.quantile * room).all())
    sentence = (
        "all pairs weigh the same"
        if alike
        else "pairs weigh unlike: by how far the row that is pushed up is preferred already"
    )
    if alike:
        sentence += ", as where policy and reference are equal"
    return [Reading("between rows", "read", sentence, "the weight of each pair's tokens", numbers=dict(numbers))]


def _length(context: Context, pair: Sequence[int]) -> float:
    """Return the tokens of a pair's first completion; 0 where a common beginning of both cancels, so that none shows."""
    rows = [context.step.rows[index] for index in pair]
    hidden = len({len(row.completion) for row in rows}) == 1 and any(row.begins == "coefficients" for row in rows)
    return 0.0 if hidden else float(len(rows[0].completion))
