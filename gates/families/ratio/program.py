"""The forward formulas of importance ratios and off-policy weights, composed of choices.

Source: docs/definitions.md, "Importance ratios, off-policy weights and ratio statistics"; TRL's GRPOTrainer (token, sequence,
`vllm_importance_sampling_mode`) and RLOOTrainer, which sums log-probs before it subtracts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, absolute, clip, exp, expm1, maximum, minimum, plain, sqrt, where
from gates.arithmetic.number import Floats
from gates.families.counts import Counted
from gates.families.limits import limits
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.ratio import edits
from gates.families.ratio import inputs as generators
from gates.families.rows import Grid, misread, tokens, total
from gates.model import Array

SUMS = ("of differences", "difference of sums")  # the usual forms of a row's log-ratio
SLACK = 1.0  # roundings of a bound, which some programs keep in the data's dtype and others in a wider one


class Pair:
    """The tokens of two policies as (B, T), with the choices of a program."""

    def __init__(self, data: Data, chosen: Choices, names: tuple[str, str]) -> None:
        self.data, self.chosen = data, chosen
        self.grid = Grid.of(data.inputs, names[0])
        self.counts = misread(self.grid.counts, chosen["mask"])
        self.first, second = self.grid.lifted(data, names[0]), np.asarray(data[names[1]])
        first = np.asarray(data[names[0]])
        recorded = np.where(np.isnan(second), first, second).astype(first.dtype)
        self.second = self.grid.wide(data.lift(recorded))
        self.dtype = first.dtype.name

    def moved(self) -> Value:
        """Return the log-ratio of each slot, (B, T), in the chosen direction."""
        kind = self.chosen["log_ratio"]
        if kind == "inverted":
            return self.second - self.first
        if kind == "absolute":
            return absolute(self.first - self.second)
        if kind == "next":
            following = np.minimum(np.arange(1, self.counts.shape[1] + 1), self.counts.shape[1] - 1)
            return self.first - self.second[:, following]
        if kind == "next row":
            return self.first - self.second[np.roll(np.arange(len(self.counts)), -1)]
        if kind == "previous":
            return self.first - self.second[:, np.maximum(np.arange(self.counts.shape[1]) - 1, 0)]
        return DIFFERENCES.get(kind, DIFFERENCES["given"])(self.first, self.second)

    def summed(self) -> Value:
        """Return the sum of the log-ratios of each row, (B, 1)."""
        if self.chosen["log_ratio"] != "given" or self.chosen["sums"] == "of differences":
            return total(self.moved(), self.counts)
        return total(self.first, self.counts) - total(self.second, self.counts)

    def ratio(self) -> Value:
        """Return the ratio of each slot or row, (B, T) or (B, 1); padding is not set yet."""
        kind = self.chosen["form"]
        if kind in OF_TOKENS:
            return OF_TOKENS[kind](self.first, self.second)
        log_ratio = LEVELS[self.chosen["level"]](self)
        if kind == "log":
            return log_ratio
        if kind == "first order":
            return log_ratio + 1.0
        if kind == "exponent clipped":
            return exp(clip(log_ratio, -1.0, 1.0))
        if kind == "less 1":
            return expm1(log_ratio)
        return exp(log_ratio * EXPONENTS[kind] if kind in EXPONENTS else log_ratio)

    def scalar(self, value: float) -> Value:
        """Return a bound, which a program may keep in the data's dtype or in a wider one."""
        return self.data.scalar(value, self.dtype)


DIFFERENCES: Mapping[str, Callable[[Value, Value], Value]] = {  # functions of the log-probs of both policies
    "given": lambda first, second: first - second,
    "first": lambda first, second: first,  # noqa: ARG005
    "second": lambda first, second: -second,  # noqa: ARG005
    "added": lambda first, second: first + second,
    "of probabilities": lambda first, second: exp(first) - exp(second),
}
OF_TOKENS: Mapping[str, Callable[[Value, Value], Value]] = {  # in the place of a ratio of each token
    "of probabilities": lambda first, second: exp(first) - exp(second),
    "quotient": lambda first, second: first / second,
}
EXPONENTS = {"squared": 2.0, "root": 0.5, "base 2": float(np.log(2.0))}  # factors of the log-ratio


def _width(pair: Pair) -> float:
    return float(pair.counts.shape[1])


def _of_batch(pair: Pair) -> Value:
    every = pair.summed().sum(0, keepdims=True) / max(float(pair.counts.sum()), 1.0)
    return every * np.ones((len(pair.counts), 1))


def _so_far(pair: Pair) -> Value:
    """Return the sum of the log-ratios up to each token, (B, T)."""
    kept, columns = where(pair.counts, pair.moved(), 0.0), np.arange(pair.counts.shape[1])
    return (kept.reshape(len(pair.counts), 1, -1) * (columns[:, None] >= columns)).sum(-1)


LEVELS: Mapping[str, Callable[[Pair], Value]] = {  # the logarithm of the ratio at each level
    "token": lambda pair: pair.moved(),
    "seq_mean": lambda pair: pair.summed() / (tokens(pair.counts) + pair.chosen.get("count_eps", 0.0)),
    "seq_sum": lambda pair: pair.summed(),
    "width": lambda pair: pair.summed() / _width(pair),
    "longest": lambda pair: pair.summed() / max(float(pair.counts.sum(axis=1).max()), 1.0),
    "square roots": lambda pair: pair.summed() / np.sqrt(tokens(pair.counts)),
    "one less": lambda pair: pair.summed() / np.maximum(tokens(pair.counts) - 1.0, 1.0),
    "sum, padding too": lambda pair: pair.moved().sum(1, keepdims=True) / tokens(pair.counts),
    "batch mean": _of_batch,
    "batch sum": lambda pair: pair.summed().sum(0, keepdims=True) * np.ones((len(pair.counts), 1)),
    "so far": _so_far,
    "last token": lambda pair: total(pair.moved(), pair.counts & ~misread(pair.counts, "without last")),
    "first token": lambda pair: total(pair.moved(), pair.counts & ~misread(pair.counts, "without first")),
}
BY_TOKEN = frozenset(("token", "so far"))
MEANS: Mapping[str, Callable[[Pair, Value], Value]] = {  # means of the token ratios of a row, (B, 1)
    "mean of ratios": lambda pair, r: total(r, pair.counts) / tokens(pair.counts),
    "sum of ratios": lambda pair, r: total(r, pair.counts),
    "mean of ratios, width": lambda pair, r: r.sum(1, keepdims=True) / _width(pair),
}


def asked_ratio(inputs: Inputs) -> Choices:
    """Return the choices that a call of `importance_ratio` asks for."""
    return {
        "mask": "given",
        "log_ratio": "given",
        "sums": "difference of sums",  # the wider bound
        "level": inputs["level"],
        "form": "exp",
        "of_rows": "ratio",
        "padding": "0",
        "shape": "given",
        "clip": None,
        "count_eps": 0.0,
        "padded": _padded(inputs, "policy"),
    }


def _padded(inputs: Inputs, name: str) -> bool:
    grid = Grid.of(inputs, name)
    return grid.place is None and not bool(np.all(grid.counts))


def compute_ratio(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return the ratio of each token or row."""
    pair = Pair(data, chosen, generators.RATIO_PAIR)
    averaged = MEANS.get(chosen["of_rows"])
    ratio = pair.ratio() if averaged is None else averaged(pair, exp(pair.moved()))
    if chosen["clip"] is not None:
        low, high = chosen["clip"]
        ratio = clip(ratio, low, high)
    by_token = chosen["form"] in OF_TOKENS or (averaged is None and chosen["level"] in BY_TOKEN)
    return {"ratio": _returned(pair, ratio, rows=not by_token)}


def _returned(pair: Pair, values: Value, *, rows: bool) -> Value:
    """Return values in the layout of the input with 0 or 1 in padding, or (B,) values of rows."""
    shape, padding = pair.chosen["shape"], {"0": 0.0, "1": 1.0}[pair.chosen["padding"]]
    if rows and shape == "given":
        return values[:, 0]
    return pair.grid.back(where(pair.counts, values * np.ones(pair.counts.shape), padding))


def asked_weights(inputs: Inputs) -> Choices:
    """Return the choices that a call of `importance_weights` asks for."""
    return {
        "mask": "given",
        "log_ratio": "given",
        "sums": "difference of sums",  # the wider bound
        "level": inputs["level"],
        "form": "exp",
        "correction": inputs["correction"],
        "low": inputs["c_min"],
        "high": inputs["c_max"],
        "outside": "0",
        "ends": "included",
        "bounded": "ratio",
        "of_rows": "ratio",
        "padding": "0",
        "shape": "given",
        "after": "nothing",
        "padded": _padded(inputs, "old"),
    }


def compute_weights(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return the weight of each token or row."""
    pair = Pair(data, chosen, generators.WEIGHTS_PAIR)
    weights = WEIGHED[chosen["bounded"]](pair)
    averaged = chosen["of_rows"] != "ratio" or chosen["bounded"].startswith("tokens")
    rows = averaged or chosen["level"] not in BY_TOKEN
    if chosen["after"] != "nothing":
        counted = np.ones(weights.shape, bool) if rows else pair.counts
        weights = AFTER[chosen["after"]](weights, counted)
    return {"weights": _returned(pair, weights, rows=rows)}


def _of_tokens(pair: Pair) -> Value:
    """Return the product of each row's bounded token ratios."""
    kept = where(pair.counts, _bounded(pair, exp(pair.moved())), 1.0)
    weights = kept[:, :1]
    for column in range(1, pair.counts.shape[1]):
        weights = weights * kept[:, column : column + 1]
    return weights


def _of_ratio(pair: Pair) -> Value:
    averaged = MEANS.get(pair.chosen["of_rows"])
    return _bounded(pair, pair.ratio() if averaged is None else averaged(pair, exp(pair.moved())))


def _of_logarithm(*, both: bool) -> Callable[[Pair], Value]:
    """Return the weights whose bounds are those of the log-ratio, the lower one negated with `both`."""

    def weights(pair: Pair) -> Value:
        low, high = _bounds(pair)
        moved = LEVELS[pair.chosen["level"]](pair)
        low = -low if both and low is not None else low
        if pair.chosen["correction"] == "tis":
            return exp(clip(moved, low, high))
        return _masked(pair, exp(moved), moved, low, high)

    return weights


def _of_size(pair: Pair) -> Value:
    """Return the weights whose bounds are those of the magnitude of the log-ratio."""
    low, high = _bounds(pair)
    moved = LEVELS[pair.chosen["level"]](pair)
    if pair.chosen["correction"] == "tis":
        return exp(clip(absolute(moved), low, high))
    return _masked(pair, exp(moved), absolute(moved), low, high)


WEIGHED: Mapping[str, Callable[[Pair], Value]] = {  # what the bounds are those of
    "ratio": _of_ratio,
    "tokens": _of_tokens,
    "tokens, mean": lambda pair: total(_bounded(pair, exp(pair.moved())), pair.counts) / tokens(pair.counts),
    "logarithm": _of_logarithm(both=False),
    "logarithm, both ways": _of_logarithm(both=True),
    "size of the logarithm": _of_size,
}


def _bounds(pair: Pair) -> tuple[Value | None, Value | None]:
    low, high = (None if bound is None else pair.scalar(bound) for bound in (pair.chosen["low"], pair.chosen["high"]))
    return low, high


def _bounded(pair: Pair, ratio: Value) -> Value:
    low, high = _bounds(pair)
    if pair.chosen["correction"] == "none":
        return ratio
    if pair.chosen["correction"] == "tis":
        return clip(ratio, low, high)
    return _masked(pair, ratio, ratio, low, high)


def _masked(pair: Pair, ratio: Value, tested: Value, low: Value | None, high: Value | None) -> Value:
    """Return the ratio where a tested number is inside the bounds, and what stands outside elsewhere."""
    strict, outside = pair.chosen["ends"] == "left out", pair.chosen["outside"]
    inside = []
    for bound, above in ((low, False), (high, True)):
        if bound is not None and above:
            inside.append((tested < bound if strict else tested <= bound, {"0 below": bound}))
        elif bound is not None:
            inside.append((tested > bound if strict else tested >= bound, {"0 above": bound}))
    if outside in {"inverted", "row"}:
        return _by_all(pair, ratio, [test for test, _ in inside])
    weights = ratio * 0.0 + 1.0 if outside == "1 inside" else ratio
    for test, held in inside:
        weights = where(test, weights, held.get(outside, 1.0 if outside == "1" else 0.0))
    return weights


def _by_all(pair: Pair, ratio: Value, tests: Sequence[Any]) -> Value:
    """Return the ratio outside the bounds, or of the rows whose tokens are all inside; 0 elsewhere."""
    ones = [where(test, ratio * 0.0 + 1.0, 0.0) for test in tests]
    inside = ones[0] if len(ones) == 1 else ones[0] * ones[1]
    if pair.chosen["outside"] == "row":
        kept = np.all((np.asarray(plain(inside)) > 0.0) | ~pair.counts, axis=1, keepdims=True)
        return where(kept, ratio, 0.0)
    return ratio * (1.0 - inside)


AFTER: Mapping[str, Callable[[Value, Array], Value]] = {
    "mean 1": lambda w, counts: w / (where(counts, w, 0.0).sum() / float(max(counts.sum(), 1))),
    "sum 1": lambda w, counts: w / where(counts, w, 0.0).sum(),
    "squared": lambda w, counts: w * w,  # noqa: ARG005
    "mean 1 by row": lambda w, counts: w / (total(w, counts) / tokens(counts)),
    "inverse": lambda w, counts: 1.0 / maximum(w, 1e-30),  # noqa: ARG005
    "at most 1": lambda w, counts: minimum(w, 1.0),  # noqa: ARG005
    "ones": lambda w, counts: w * 0.0 + 1.0,  # noqa: ARG005
    "root": lambda w, counts: sqrt(w),  # noqa: ARG005
    "largest 1": lambda w, counts: w / float(np.max(plain(w), where=counts, initial=1e-30)),
    "next row": lambda w, counts: w[np.roll(np.arange(len(counts)), -1)],
}


RATIO = Program(
    op="importance_ratio",
    asked=asked_ratio,
    compute=compute_ratio,
    edits=edits.of_ratio,
    inputs=generators.designed_ratio,
    outputs=("ratio",),
    places=generators.places_ratio,
    fitted=Counted(compute_ratio, edits.of_ratio, "", {"the count of tokens": ("count_eps",)}).fitted,
    presets=edits.ratio_presets,
)
WEIGHTS = Program(
    op="importance_weights",
    asked=asked_weights,
    compute=compute_weights,
    edits=edits.of_weights,
    inputs=generators.designed_weights,
    outputs=("weights",),
    places=generators.places_weights,
    presets=edits.weight_presets,
)
PROGRAMS = (RATIO, WEIGHTS)


def importance_ratio(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `ratio`."""
    return limits(RATIO, inputs, _forms(inputs), slack=SLACK)


def importance_weights(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `weights`; within its own error of a bound of MIS a ratio may or may not count as 0."""
    return limits(WEIGHTS, inputs, _forms(inputs), slack=SLACK)


def _forms(inputs: Inputs) -> list[Choices]:
    return [{"sums": form} for form in (SUMS[:1] if inputs["level"] == "token" else SUMS)]
