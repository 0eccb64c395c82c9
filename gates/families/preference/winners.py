"""The forward formulas of what scores choose: of two completions, of many, and the loss of the chosen one.

Source: docs/definitions.md, "Preference losses"; Online DPO, arXiv 2402.04792; Best-of-N, arXiv 2009.01325, section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gates.arithmetic.functions import Value, exp, where
from gates.arithmetic.number import UNIT, Number
from gates.families import arrays
from gates.families.edits import mistakes
from gates.families.program import Choices, Data, Edit, Inputs, Program
from gates.families.rows import MASKS, misread, tokens, total
from gates.model import Array

SIZES = ((5, 4), (6, 3), (4, 5), (7, 2), (3, 6), (8, 4), (5, 7), (9, 3))  # prompts and completions of each

# --- of two completions


def _signs(better: Array, tied: Array) -> Array:
    return np.where(tied, 0.0, np.where(better, 1.0, -1.0))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


RULES: Mapping[str, tuple[str, Callable[[Array, Array], Array]]] = {  # words, and the sign of the first of two scores
    "higher": ("the higher score", lambda a, b: np.where(a >= b, 1.0, -1.0)),
    "lower": ("the lower score preferred", lambda a, b: np.where(a <= b, 1.0, -1.0)),
    "tie to the second": ("a tie prefers the second completion", lambda a, b: np.where(a > b, 1.0, -1.0)),
    "tie to none": ("a tie prefers none: 0 and 0", lambda a, b: _signs(a > b, a == b)),
    "first": ("the first completion always preferred", lambda a, b: np.ones_like(a)),  # noqa: ARG005
    "second": ("the second completion always preferred", lambda a, b: -np.ones_like(a)),  # noqa: ARG005
    "difference": ("the difference of the scores, not its sign", lambda a, b: a - b),
    "by sign": ("the first completion preferred where its score is above 0", lambda a, b: np.where(a > 0.0, 1.0, -1.0)),  # noqa: ARG005
    "magnitude": ("the score of the larger magnitude preferred", lambda a, b: np.where(abs(a) >= abs(b), 1.0, -1.0)),
    "probability": ("2σ(difference) − 1, the expected preference", lambda a, b: 2.0 * _sigmoid(a - b) - 1.0),
    "half": ("signs of ±½, not ±1", lambda a, b: np.where(a >= b, 0.5, -0.5)),
    "clear": ("0 and 0 where the scores differ by less than ½", lambda a, b: _signs(a > b, abs(a - b) < 0.5)),
}
PAIRS = {
    "halves": "row k paired with row k + P, not each two rows in turn",
    "mirrored": "the first row paired with the last, the second with the last but one",
    "next": "each second completion of a pair compared with the first of the next pair",
}
SIDES = {
    "0 for the other": "0 for the other completion, not −1",
    "same for both": "the same sign for both completions of a pair",
}
UNSCORED = {
    "loses": "a completion that is not scored loses",
    "wins": "a completion that is not scored wins",
    "zero": "a completion that is not scored has the score 0",
}


def asked_preference(call: Inputs) -> Choices:
    """Return the choices that a call of `prefer` asks for."""
    unscored = bool(np.isnan(np.asarray(call["scores"], np.float64)).any())
    return {"rule": "higher", "pairs": "in turn", "sides": "both", "unscored": "none", "has_nan": unscored}


def compute_preference(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return the sign of each completion."""
    scores = np.asarray(data["scores"], np.float64)
    pairs = _pairs(chosen["pairs"], len(scores))
    a, b = scores[pairs[:, 0]], scores[pairs[:, 1]]
    unscored = np.isnan(a) | np.isnan(b)
    instead = {"loses": -np.inf, "wins": np.inf, "zero": 0.0}.get(chosen["unscored"])
    if instead is not None:
        a, b = np.where(np.isnan(a), instead, a), np.where(np.isnan(b), instead, b)
    first = RULES[chosen["rule"]][1](a, b)
    first = np.where(unscored, 0.0, first) if instead is None else first
    second = first if chosen["sides"] == "same for both" else -first
    if chosen["sides"] == "0 for the other":
        first, second = np.maximum(first, 0.0), np.maximum(-first, 0.0)
    signs = np.zeros(len(scores))
    signs[pairs[:, 0]], signs[pairs[:, 1]] = first, second
    return {"signs": data.lift(signs, "float64")}


def _pairs(kind: str, rows: int) -> Array:
    """Return the two rows of each pair, (P, 2)."""
    numbers = np.arange(rows)
    pairs = {
        "halves": numbers.reshape(2, -1).T,
        "mirrored": np.stack([numbers[: rows // 2], numbers[::-1][: rows // 2]], axis=1),
        "next": np.roll(numbers, -1).reshape(-1, 2),
    }
    return pairs.get(kind, numbers.reshape(-1, 2))


def edits_of_preference(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a preference."""
    yield from mistakes("rule", {name: words for name, (words, _) in RULES.items()}, without=("higher",))
    yield from mistakes("pairs", PAIRS)
    yield from mistakes("sides", SIDES)
    if asked["has_nan"]:
        yield from mistakes("unscored", UNSCORED)


def designed_scores(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches of scores of both signs, with ties, and unscored ones where the example has some."""
    unscored = bool(np.isnan(np.asarray(example["scores"], np.float64)).any())
    for prompts, size in SIZES:
        scores = rng.normal(0.3, 1.0, 4 * prompts + 2 * size)
        if len(np.unique(example["scores"])) < np.size(example["scores"]):
            scores = np.round(2.0 * scores) / 2.0
        yield {**example, "scores": np.where(unscored & (rng.random(scores.shape) < 0.2), np.nan, scores)}


PREFERENCE = Program(
    op="prefer",
    asked=asked_preference,
    compute=compute_preference,
    edits=edits_of_preference,
    inputs=designed_scores,
    outputs=("signs",),
)

# --- of many completions

WINNERS: Mapping[str, tuple[str, Callable[[Array], Array]]] = {  # words, and the winning member of (groups, n) scores
    "highest": ("the highest score", lambda x: np.argmax(_known(x), axis=1)),
    "lowest": ("the lowest score wins", lambda x: np.nanargmin(x, axis=1)),
    "last of several": ("the last of several highest scores wins", lambda x: _last(_known(x))),
    "second": ("the second highest score wins", lambda x: np.argsort(-_known(x), axis=1, kind="stable")[:, 1]),
    "first": ("the first row of each group wins", lambda x: np.zeros(len(x), np.int64)),
    "last": ("the last row of each group wins", lambda x: np.full(len(x), x.shape[1] - 1)),
    "magnitude": ("the score of the largest magnitude wins", lambda x: np.nanargmax(abs(x), axis=1)),
    "median": ("the median score wins", lambda x: np.argsort(-_known(x), axis=1, kind="stable")[:, x.shape[1] // 2]),
    "next group": (
        "the place of the next group's highest score wins",
        lambda x: np.roll(np.argmax(_known(x), axis=1), -1),
    ),
    "first above 0": ("the first score above 0 wins", lambda x: np.argmax(_known(x) > 0.0, axis=1)),
    "nearest to the mean": (
        "the score nearest to the mean wins",
        lambda x: np.nanargmin(abs(x - np.nanmean(x, axis=1, keepdims=True)), axis=1),
    ),
    "NaN": ("a score that is NaN wins, as in argmax", lambda x: np.argmax(x, axis=1)),
}
GROUPS = {
    "strided": "groups of every P-th row (P prompts), as if rows were member-major",
    "n prompts": "groups of P consecutive rows: the number of prompts taken for that of members",
    "batch": "the highest score of the whole batch for every group",
}
ROWS = {
    "in the group": "the place of the winner in its group, not its row",
    "from 1": "rows counted from 1",
    "by score": "the winning rows in the order of their scores, not of their groups",
}


def _known(scores: Array) -> Array:
    return np.where(np.isnan(scores), -np.inf, scores)


def _last(scores: Array) -> Array:
    return np.asarray(scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1))


def winners(call: Inputs, chosen: Choices) -> Array:
    """Return the winning row of each group."""
    scores, size = np.asarray(call["scores"], np.float64), int(call["group_size"])
    numbers = np.arange(len(scores))
    tables = {"strided": numbers.reshape(size, -1).T, "n prompts": numbers.reshape(size, -1)}
    table = tables.get(chosen["groups"], numbers.reshape(-1, size))
    places = WINNERS[chosen["winner"]][1](scores[table])
    rows = table[np.arange(len(table)), places]
    if chosen["groups"] == "batch":
        rows = np.full(rows.shape, np.argmax(_known(scores)))
    if chosen["rows"] == "by score":
        rows = rows[np.argsort(-_known(scores)[rows], kind="stable")]
    moved = {"in the group": places, "from 1": rows + 1}
    return np.asarray(moved.get(chosen["rows"], rows))


def asked_winner(call: Inputs) -> Choices:
    """Return the choices that a call of `best_of_n` asks for."""
    unscored = bool(np.isnan(np.asarray(call["scores"], np.float64)).any())
    return {"winner": "highest", "groups": "given", "rows": "given", "has_nan": unscored}


def compute_winner(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return the winning rows."""
    return {"rows": data.lift(winners(data.inputs, chosen).astype(np.float64), "float64")}


def edits_of_winner(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of Best-of-N."""
    absent = ("highest",) if asked["has_nan"] else ("highest", "NaN")
    yield from mistakes("winner", {name: words for name, (words, _) in WINNERS.items()}, without=absent)
    yield from mistakes("groups", GROUPS)
    yield from mistakes("rows", ROWS)


def designed_groups(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches of groups with scores of both signs, with ties and NaN only where the example has them."""
    given = np.asarray(example["scores"], np.float64)
    known = given[~np.isnan(given)]
    for prompts, size in SIZES:
        scores = rng.normal(0.2, 1.0, (prompts, size))
        if len(np.unique(known)) < known.size:
            scores = np.round(scores)
        if known.size < given.size:
            scores = np.where((rng.random(scores.shape) < 0.3) & (np.arange(size) != prompts % size), np.nan, scores)
        yield {**example, "scores": scores.reshape(-1), "group_size": size}


WINNER = Program(
    op="best_of_n",
    asked=asked_winner,
    compute=compute_winner,
    edits=edits_of_winner,
    inputs=designed_groups,
    outputs=("rows",),
)

# --- the loss of the winner

MEANS: Mapping[str, tuple[str, Callable[[Array, int], Array]]] = {  # words, and weights of rows by the winners' tokens
    "prompts": ("the mean over prompts of the winner's mean", lambda n, rows: 1.0 / (n * len(n))),  # noqa: ARG005
    "tokens": ("the mean over all tokens of the winners", lambda n, rows: 1.0 / (n * 0.0 + n.sum())),  # noqa: ARG005
    "sums": ("the mean over prompts of the winner's summed −log π", lambda n, rows: 1.0 / (n * 0.0 + len(n))),  # noqa: ARG005
    "sum of means": ("the winners' means summed, not divided by the prompts", lambda n, rows: 1.0 / n),  # noqa: ARG005
    "rows": ("the winners' means divided by all rows, not by the prompts", lambda n, rows: 1.0 / (n * rows)),
    "sum": ("the winners' −log π summed", lambda n, rows: n * 0.0 + 1.0),  # noqa: ARG005
    "longest": ("the winners' sums over the longest winner", lambda n, rows: 1.0 / (n * 0.0 + len(n) * n.max())),  # noqa: ARG005
}
LOSERS = {
    "train too": "every row trains, not the winners alone",
    "pushed down": "the other rows trained with the wrong sign: their −log π subtracted",
}
OF_TOKENS = {
    "probability": "the probability of each token, not its logarithm",
    "by score": "each winner weighed by its score",
}


def asked_loss(call: Inputs) -> Choices:
    """Return the choices that a call of `winner_loss` asks for."""
    common = {"mean": "prompts", "losers": "out", "tokens": "log π", "mask": "given", "sign": 1.0, "parts": "added"}
    return {**asked_winner(call), **common, "several": len(call["parts"]) > 1}


def compute_loss(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    given = np.asarray(data["mask"], bool)
    counts, rows = misread(given, chosen["mask"]), winners(data.inputs, chosen)
    of_winners = np.isin(np.arange(len(counts)), rows)[:, None]
    trained = of_winners if chosen["losers"] == "out" else np.ones_like(of_winners)
    terms = -(exp(variable) if chosen["tokens"] == "probability" else variable)
    if chosen["tokens"] == "by score":
        terms = terms * np.nan_to_num(np.asarray(data["scores"], np.float64))[:, None]
    if chosen["losers"] == "pushed down":
        terms = terms * np.where(of_winners, 1.0, -1.0)
    sums = total(where(trained, terms, 0.0), counts)
    n = tokens(counts)
    weights = np.zeros(n.shape)
    weights[trained] = MEANS[chosen["mean"]][1](n[trained], len(counts))
    weights = weights / (len(data["parts"]) if chosen["parts"] == "averaged" else 1.0)
    return {"loss": (sums * _rounded(weights, variable)).sum() * chosen["sign"]}


def _rounded(weights: Array, variable: Value) -> Value:
    """Return weights of rows with the rounding of two quotients."""
    if not isinstance(variable, Number):
        return weights
    return Number(weights, variable.dtype, 2.0 * UNIT[variable.dtype] * weights)


def edits_of_loss(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of the winner's loss, then those of who wins."""
    yield from mistakes("mean", {name: words for name, (words, _) in MEANS.items()}, without=("prompts",))
    yield from mistakes("losers", LOSERS)
    yield from mistakes("tokens", OF_TOKENS)
    yield from mistakes("mask", MASKS)
    yield Edit("the loss with the wrong sign", {"sign": -1.0})
    if asked["several"]:
        yield Edit("the losses of micro-batches averaged, which are parts of one mean", {"parts": "averaged"})
    yield from (edit for edit in edits_of_winner(asked) if "rows" not in edit.changes)


def designed_loss(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight steps with the dtype of a call, groups of several sizes and winners of several lengths."""
    dtype = np.asarray(example["policy"]).dtype
    for index, call in enumerate(designed_groups(example, rng)):
        rows, width = len(call["scores"]), 9 + index
        lengths = rng.integers(2, width, rows)
        starts = rng.integers(0, 2, rows)
        columns = np.arange(width)
        first = int(rng.integers(1, rows))
        yield {
            **call,
            "policy": arrays.logprobs(rng, (rows, width)).astype(dtype),
            "mask": (columns >= starts[:, None]) & (columns < lengths[:, None]),
            "parts": [rows] if len(example["parts"]) == 1 else [first, rows - first],
        }


LOSS = Program(
    op="winner_loss",
    asked=asked_loss,
    compute=compute_loss,
    edits=edits_of_loss,
    inputs=designed_loss,
    outputs=("loss", "gradient"),
    variable="policy",
)
PROGRAMS = (PREFERENCE, WINNER, LOSS)
