"""One step's tokens in the forward definition of the policy losses: advantages, log-ratios, ratios, means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, detached, exp, maximum, sqrt
from gates.diagnosis.program import Choices, Data
from gates.diagnosis.programs.rows import Grid, misread, tokens, total
from gates.model import Array


class Step:
    """The tokens as (B, T), and the choices that read them.

    Attributes:
        counts: the slots that hold a token, as the chosen mask says.
        lp: log-probs of the policy, the variable of the gradient.
        tokens: n of each row, (B, 1), at least 1.
    """

    def __init__(self, data: Data, chosen: Choices, variable: Value) -> None:
        inputs = data.inputs
        if chosen["row_mask"] == "ignored":
            inputs = {name: x for name, x in inputs.items() if name != "row_mask"}
        self.data, self.chosen = data, chosen
        self.grid = Grid.of(inputs, "policy")
        self.counts = misread(self.grid.counts, chosen["mask"])
        self.lp = self.grid.wide(variable)
        self.tokens = tokens(self.counts)
        self._dtype = np.asarray(data["policy"]).dtype.name

    def constant(self, name: str) -> Value | None:
        """Return a chosen constant such as ε, or None."""
        value = self.chosen[name]
        return None if value is None else self.scalar(value)

    def scalar(self, value: float) -> Value:
        """Return a constant in the data's dtype or wider."""
        return self.data.scalar(value, self._dtype)

    def given(self, name: str) -> Value:
        """Return log-probs of another model as (B, T); the policy's own, as constants, where none are given."""
        if self.data.get(name) is None:
            return detached(self.lp)
        return self.grid.lifted(self.data, name)

    def advantages(self) -> Value:
        """Return A of each slot, (B, T)."""
        given = self.grid.lifted(self.data, "advantages")
        found = ADVANTAGES[self.chosen["advantages"]](given, self.counts)
        if self.chosen["kl"] != "in the advantages":
            return found
        return found - self.scalar(self.chosen["beta"]) * detached(self.lp - self.given("reference"))

    def log_ratio(self) -> Value:
        """Return D of each slot, (B, T)."""
        choice = self.chosen["log_ratio"]
        lp = detached(self.lp) if choice == "detached" else self.lp
        old = self.given("reference" if choice == "reference" else "old")
        if choice == "on-policy":
            return lp - detached(lp)
        if choice == "old next token":
            return lp - old[:, _following(self.counts)]
        return old - lp if choice == "inverted" else lp - old

    def ratio(self, level: str, log_ratio: Value) -> Value:
        """Return r of each slot: (B, T), or (B, 1) for a level of the row."""
        return RATIOS[level](self, log_ratio)

    def mean(self, term: Value, kind: str) -> Value:
        """Return the mean of (B, T) or (B, 1) terms, which are 0 where no token stands."""
        return (term * np.ones(self.counts.shape) * row_weights(self.counts, kind, self.data.inputs)).sum()


def _following(counts: Array) -> Array:
    return np.asarray(np.minimum(np.arange(1, counts.shape[1] + 1), counts.shape[1] - 1))


def _of_last_token(a: Value, counts: Array) -> Value:
    last = np.maximum(counts.sum(axis=1) - 1, 0)[:, None]
    return a[np.arange(len(counts))[:, None], np.broadcast_to(last, counts.shape)]


def _whitened(a: Value, picked: Value, ddof: float = 1.0) -> Value:
    """Return the values less the mean of the picked ones, over their deviation."""
    off = picked - picked.mean()
    deviation = sqrt((off * off).sum() / max(float(picked.shape[0]) - ddof, 1.0))
    return (a - picked.mean()) / (deviation + 1e-8)


ADVANTAGES: Mapping[str, Callable[[Value, Array], Value]] = {
    "given": lambda a, counts: a,  # noqa: ARG005
    "negated": lambda a, counts: -a,  # noqa: ARG005
    "absolute": lambda a, counts: absolute(a),  # noqa: ARG005
    "whitened": lambda a, counts: _whitened(a, a[:, 0]),  # noqa: ARG005
    "whitened by n": lambda a, counts: _whitened(a, a[:, 0], 0.0),  # noqa: ARG005
    "whitened by tokens": lambda a, counts: _whitened(a, a[counts]),
    "whitened by n tokens": lambda a, counts: _whitened(a, a[counts], 0.0),
    "centred": lambda a, counts: a - a[:, 0].mean(),  # noqa: ARG005
    "next row": lambda a, counts: a[np.roll(np.arange(len(counts)), -1)],
    "next token": lambda a, counts: a[:, _following(counts)],
    "last token": _of_last_token,
    "positive": lambda a, counts: maximum(a, 0.0),  # noqa: ARG005
    "ones": lambda a, counts: a * 0.0 + 1.0,  # noqa: ARG005
}


def _row(step: Step, log_ratio: Value, divisor: Any) -> Value:
    return exp(total(log_ratio, step.counts) / divisor)


RATIOS: Mapping[str, Callable[[Step, Value], Value]] = {
    "token": lambda step, d: exp(d),  # noqa: ARG005
    "first order": lambda step, d: d + 1.0,  # noqa: ARG005
    "log": lambda step, d: d,  # noqa: ARG005
    "quotient": lambda step, d: step.lp / step.given("old"),  # noqa: ARG005
    "row mean": lambda step, d: _row(step, d, step.tokens),
    "row product": lambda step, d: _row(step, d, 1.0),
    "row mean over the width": lambda step, d: _row(step, d, float(step.counts.shape[1])),
    "row mean, padding too": lambda step, d: exp(d.sum(1, keepdims=True) / step.tokens),
    "row product, padding too": lambda step, d: exp(d.sum(1, keepdims=True)),  # noqa: ARG005
    "row mean, no slope": lambda step, d: detached(_row(step, d, step.tokens)),
    "row mean, token slope": lambda step, d: detached(_row(step, d, step.tokens)) * exp(step.lp - detached(step.lp)),
    "mean of ratios": lambda step, d: total(exp(d), step.counts) / step.tokens,
    "batch mean": lambda step, d: exp(total(d, step.counts).sum(0, keepdims=True) / max(float(step.counts.sum()), 1.0)),
}


def row_weights(counts: Array, kind: str, inputs: Mapping[str, Any]) -> Array:
    """Return what a token of each row weighs, (B, 1)."""
    rows, width, n = len(counts), counts.shape[1], tokens(counts)
    size = int(inputs.get("group_size") or rows)
    blocks = {"prompt tokens": [size] * (rows // size), "micro-batch tokens": inputs.get("micro_batches")}.get(kind)
    if blocks:
        return _of_blocks(counts, blocks)
    sums = counts.sum(axis=1).astype(np.float64)
    every = max(float(sums.sum()), 1.0)
    longest = float(inputs.get("max_length") or width)
    weight: Any = {
        "row means": 1.0 / (n * rows),
        "row means of rows with tokens": 1.0 / (n * max(float((sums > 0).sum()), 1.0)),
        "sum of row means": 1.0 / n,
        "tokens": 1.0 / every,
        "tokens times rows": 1.0 / (every * rows),
        "constant": 1.0 / (rows * longest),
        "constant, summed over rows": 1.0 / longest,
        "tokens of the step": 1.0 / float(inputs.get("tokens_in_step") or every),
        "width": 1.0 / (rows * width),
        "longest row": 1.0 / (rows * max(float(sums.max()), 1.0)),
        "row sums": 1.0 / rows,
        "sum": 1.0,
        "sum over the width": 1.0 / width,
        "square roots": 1.0 / (np.sqrt(n) * rows),
        "mean length": 1.0 / (rows * max(float(sums.mean()), 1.0)),
    }[kind]
    return np.asarray(weight * np.ones((rows, 1)))


def _of_blocks(counts: Array, blocks: list[int]) -> Array:
    ends = np.cumsum(blocks)
    held = [max(float(counts[end - size : end].sum()), 1.0) for end, size in zip(ends, blocks, strict=True)]
    return np.repeat(1.0 / np.asarray(held), blocks)[:, None] / len(blocks)
