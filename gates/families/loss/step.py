"""The tokens of one step in the forward formula of the policy losses: advantages, ratios, means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gates.arithmetic import bounded
from gates.arithmetic.functions import (
    Value,
    absolute,
    clip,
    detached,
    exp,
    maximum,
    minimum,
    plain,
    sigmoid,
    sqrt,
    where,
)
from gates.arithmetic.number import UNIT, Number
from gates.families.program import Choices, Data
from gates.families.rows import Grid, misread, tokens, total
from gates.model import Array

BASES = {"base 2": float(np.log(2.0)), "of bits": 1.0 / float(np.log(2.0)), "half": 0.5, "twice": 2.0}  # factors of D
BY_ROW = frozenset({"advantages", "weights"})  # where N = B, a flat array holds those of rows


class Step:
    """The tokens of a step as (B, T), with the choices of a program.

    Attributes:
        counts: (B, T) bool, true on tokens by the chosen mask.
        averaged: (B, T) bool, the tokens that a mean counts.
        lp: log-probs of the policy, the variable of the gradient.
        tokens: number of tokens of each row, (B, 1), at least 1, by which log-ratios are averaged.
    """

    def __init__(self, data: Data, chosen: Choices, variable: Value) -> None:
        inputs = data.inputs
        if chosen["row_mask"] == "ignored":
            inputs = {name: x for name, x in inputs.items() if name != "row_mask"}
        if chosen["row_mask"] == "inverted":
            inputs = {**inputs, "row_mask": ~np.asarray(inputs["row_mask"], bool)}
        self.data, self.chosen = data, chosen
        self.grid = Grid.of(inputs, "policy")
        without = {name: x for name, x in inputs.items() if name != "row_mask"}
        whole = Grid.of(without, "policy").counts if chosen["row_mask"] == "in the sums only" else None
        self.counts = misread(self.grid.counts, chosen["mask"])
        self.lp = self.grid.wide(variable)
        self.dtype = variable.dtype if isinstance(variable, Number) else "float64"
        self.tokens = tokens(self.counts) + chosen["level_eps"]
        self.averaged = self.counts if whole is None else whole
        if chosen["weights"] == "mask too":
            self.averaged = self.counts & (np.asarray(plain(self.lifted("weights"))) > 0.0)

    def lifted(self, name: str) -> Value:
        """Return an input of slots or rows as (B, T); a `Number` keeps its own errors."""
        values = self.data[name]
        if not isinstance(values, Number):
            values = self.data.lift(values, self.dtype if self.data.bounded else None)
        return self.grid.wide(values, by_row=name in BY_ROW)

    def constant(self, name: str) -> Value | None:
        """Return a chosen constant such as ε, or None."""
        value = self.chosen[name]
        return None if value is None else self.scalar(value)

    def scalar(self, value: float) -> Value:
        """Return a constant, which a program may keep in the data's dtype or in a wider one."""
        return Number(float(value), self.dtype, UNIT[self.dtype] * abs(value)) if self.data.bounded else float(value)

    def gate(self, x: Value) -> Value:
        """Return σ(x), with the choice "by side" in the form that does not overflow."""
        return bounded.sigmoid(x) if self.chosen.get("sigmoid") == "by side" else sigmoid(x)

    def temperature(self, a: Value) -> Value:
        """Return τ of each slot, by the sign of its advantage."""
        return where(plain(a) > 0.0, *(self.scalar(x) for x in self.chosen["tau"]))

    def logprobs(self, name: str) -> Value:
        """Return another model's log-probs as (B, T); without any, the policy's own as constants."""
        if self.data.get(name) is None:
            return detached(self.lp)
        return self.lifted(name)

    def advantages(self) -> Value:
        """Return A of each slot, (B, T)."""
        name = "weights" if self.chosen["weights"] == "for advantages" else "advantages"
        advantages = ADVANTAGES[self.chosen["advantages"]](self.lifted(name), self.counts)
        if self.chosen["kl"] != "in the advantages":
            return advantages
        return advantages - self.scalar(self.chosen["beta"]) * detached(self.lp - self.logprobs("reference"))

    @cached_property
    def drift(self) -> Value:
        """The difference policy − old of each slot, (B, T), computed once."""
        return self.lp - self.logprobs("old")

    def log_ratio(self) -> Value:
        """Return D of each slot, (B, T), clamped where the choice is a clamp of tokens."""
        return self.clamped(self._log_ratio(), "tokens")

    def clamped(self, log_ratio: Value, of: str) -> Value:
        """Return log-ratios of tokens or of rows within the chosen clamp, if it is one of them."""
        if self.chosen["clamp of"] != of:
            return log_ratio
        low, high = self.chosen["clamp"]
        return clip(log_ratio, low, high)

    def _log_ratio(self) -> Value:
        choice = self.chosen["log_ratio"]
        if choice == "given":
            return self.drift
        lp = detached(self.lp) if choice == "detached" else self.lp
        old = self.logprobs("reference" if choice == "reference" else "old")
        if choice == "on-policy":
            return lp - detached(lp)
        if choice in {"old next token", "old previous token"}:
            return lp - (self.following(old) if choice == "old next token" else self.preceding(old))
        if choice == "old of the next row":
            return lp - old[np.roll(np.arange(len(self.counts)), -1)]
        if choice in BASES:
            return (lp - old) * BASES[choice]
        return PAIRED.get(choice, PAIRED["given"])(lp, old)

    def following(self, values: Value) -> Value:
        """Return the values of each slot's next slot, (B, T)."""
        return values[:, _following(self.counts)]

    def preceding(self, values: Value) -> Value:
        """Return the values of each slot's preceding slot, (B, T)."""
        return values[:, np.maximum(np.arange(self.counts.shape[1]) - 1, 0)]

    def logarithm(self, level: str, log_ratio: Value) -> Value:
        """Return the log-ratio at a level: (B, T), or (B, 1) at a row level."""
        if level == "token":
            return log_ratio
        return self.summed(log_ratio) / (self.tokens if level == "seq_mean" else 1.0)

    def summed(self, log_ratio: Value) -> Value:
        """Return the sum of a row's log-ratios, (B, 1).

        Limits are those of the difference of two sums, which some programs compute: it rounds at the size of the log-probs.
        """
        if not self.data.bounded or log_ratio is not self.drift:
            return total(log_ratio, self.counts)
        return total(self.lp, self.counts) - total(self.logprobs("old"), self.counts)

    def ratio(self, level: str, log_ratio: Value) -> Value:
        """Return the ratio at a level that the surrogate bounds: (B, T), or (B, 1) at a row level."""
        ratio = self.unweighed_ratio(level, log_ratio)
        return ratio * self.lifted("weights") if self.chosen["weights"] == "in the ratio" else ratio

    def unweighed_ratio(self, level: str, log_ratio: Value) -> Value:
        """Return the ratio at a level: (B, T), or (B, 1) at a row level."""
        return RATIOS[level](self, log_ratio)

    def mean(self, term: Value, kind: str | None = None, *, of_kl: bool = False) -> Value:
        """Return the mean of (B, T) or (B, 1) terms, which are 0 outside tokens.

        Terms are divided before they are summed; dividing the sums rounds less often, in the same orders. With `parts` the
        micro-batches are added one after the other.
        """
        if self.chosen["mean of"] == "advantages, KL too" or (self.chosen["mean of"] == "advantages" and not of_kl):
            return self._by_advantages(term)
        divided = term * np.ones(self.counts.shape) * self.row_weights(kind, of_kl=of_kl)
        parts = self.data.get("parts")
        if parts is None:
            return divided.sum()
        ends = np.cumsum(parts)
        sums = [divided[end - size : end].sum() for size, end in zip(parts, ends, strict=True)]
        return sum(sums[1:], start=0.0 + sums[0])

    def _by_advantages(self, term: Value) -> Value:
        """Return the mean of terms with the advantages taken for the mask of the mean."""
        mask = where(self.counts, self.lifted("advantages"), 0.0)
        if self.chosen["mean"] == "token-mean":
            return (term * mask / mask.sum()).sum()
        return (term * mask / mask.sum(1, keepdims=True)).sum() / float(len(self.counts))

    def row_weights(self, kind: str | None = None, *, of_kl: bool = False) -> Value:
        """Return the weight of a token in each row, (B, 1), with the rounding of up to two quotients and a sum."""
        counts = self.counts if of_kl and self.chosen["weights"] == "mask too" else self.averaged
        weights = row_weights(counts, kind or self.chosen["mean"], self.data.inputs, self.chosen["count_eps"])
        factor, of_both = ROW_FACTORS[self.chosen["rows"]]
        weights = weights if of_kl and not of_both else weights * self.tokens**factor
        return (
            Number(weights, self.dtype, (3.0 if self.chosen["count_eps"] else 2.0) * UNIT[self.dtype] * weights)
            if self.data.bounded
            else weights
        )


PAIRED: Mapping[str, Callable[[Value, Value], Value]] = {  # functions of the log-probs of policy and old
    "given": lambda lp, old: lp - old,
    "inverted": lambda lp, old: old - lp,
    "without old": lambda lp, old: lp,  # noqa: ARG005
    "added": lambda lp, old: lp + old,
    "of probabilities": lambda lp, old: exp(lp) - exp(old),
    "absolute": lambda lp, old: absolute(lp - old),
}
ROW_FACTORS = {  # the power of a row's tokens by which its terms are multiplied, and whether those of the KL are too
    "as averaged": (0.0, True),
    "n": (1.0, True),
    "1/n": (-1.0, True),
    "n of the policy term": (1.0, False),
    "1/n of the policy term": (-1.0, False),
}


def _following(counts: Array) -> Array:
    return np.asarray(np.minimum(np.arange(1, counts.shape[1] + 1), counts.shape[1] - 1))


def _of_last_token(a: Value, counts: Array) -> Value:
    last = np.maximum(counts.sum(axis=1) - 1, 0)[:, None]
    return a[np.arange(len(counts))[:, None], np.broadcast_to(last, counts.shape)]


def _whitened(a: Value, picked: Value, ddof: float = 1.0) -> Value:
    """Return the values less the mean of the picked values, over their deviation."""
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
    "previous row": lambda a, counts: a[np.roll(np.arange(len(counts)), 1)],
    "signs": lambda a, counts: where(plain(a) > 0.0, 1.0, where(plain(a) < 0.0, -1.0, a * 0.0)),  # noqa: ARG005
    "negative": lambda a, counts: minimum(a, 0.0),  # noqa: ARG005
    "next token": lambda a, counts: a[:, _following(counts)],
    "last token": _of_last_token,
    "row mean": lambda a, counts: total(a, counts) / tokens(counts) * np.ones(counts.shape),
    "positive": lambda a, counts: maximum(a, 0.0),  # noqa: ARG005
    "ones": lambda a, counts: a * 0.0 + 1.0,  # noqa: ARG005
    "squared": lambda a, counts: a * a,  # noqa: ARG005
    "clipped": lambda a, counts: clip(a, -1.0, 1.0),  # noqa: ARG005
    "batch mean": lambda a, counts: a * 0.0 + a[:, 0].mean(),  # noqa: ARG005
}


def _so_far(step: Step, log_ratio: Value) -> Value:
    """Return the sum of a row's log-ratios up to each token, (B, T)."""
    kept, columns = where(step.counts, log_ratio, 0.0), np.arange(step.counts.shape[1])
    return (kept.reshape(len(step.counts), 1, -1) * (columns[:, None] >= columns)).sum(-1)


def _row(step: Step, log_ratio: Value, divisor: Any) -> Value:
    return exp(step.clamped(step.summed(log_ratio) / divisor, "rows"))


RATIOS: Mapping[str, Callable[[Step, Value], Value]] = {  # the table's choices, and mistakes
    "token": lambda step, d: exp(d),  # noqa: ARG005
    "seq_mean": lambda step, d: _row(step, d, step.tokens),
    "seq_mean_token": lambda step, d: detached(_row(step, d, step.tokens)) * exp(step.lp - detached(step.lp)),
    "seq_sum": lambda step, d: _row(step, d, 1.0),
    "first order": lambda step, d: d + 1.0,  # noqa: ARG005
    "log": lambda step, d: d,  # noqa: ARG005
    "quotient": lambda step, d: step.lp / step.logprobs("old"),  # noqa: ARG005
    "row mean over the width": lambda step, d: _row(step, d, float(step.counts.shape[1])),
    "row mean, padding too": lambda step, d: exp(d.sum(1, keepdims=True) / step.tokens),
    "row product, padding too": lambda step, d: exp(d.sum(1, keepdims=True)),  # noqa: ARG005
    "row mean, no slope": lambda step, d: detached(_row(step, d, step.tokens)),
    "mean of ratios": lambda step, d: total(exp(d), step.counts) / step.tokens,
    "longest row": lambda step, d: _row(step, d, float(step.tokens.max())),
    "square roots": lambda step, d: _row(step, d, np.sqrt(step.tokens)),
    "so far": lambda step, d: exp(_so_far(step, d)),
    "batch mean": lambda step, d: exp(total(d, step.counts).sum(0, keepdims=True) / max(float(step.counts.sum()), 1.0)),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The counts of a step by which losses are divided.

    Attributes:
        rows: B.
        width: T.
        tokens: number of tokens of each row, (B, 1), at least 1.
        sums: number of tokens of each row, (B,).
        columns: number of tokens of each column, (1, T), at least 1.
        inputs: the call, which may hold L_max and the tokens of the step.
        eps: a constant that is added to counts of tokens.
    """

    rows: int
    width: int
    tokens: Array
    sums: Array
    columns: Array
    inputs: Mapping[str, Any]
    eps: float = 0.0

    @property
    def every(self) -> float:
        """The number of tokens of the step, at least 1."""
        return max(float(self.sums.sum()), 1.0) + self.eps

    @property
    def limit(self) -> float:
        """L_max, or T without one."""
        return float(self.inputs.get("max_length") or self.width)


WEIGHTS: Mapping[str, Callable[[Sizes], Any]] = {  # of a token, for each aggregation that has no blocks of rows
    "row-mean": lambda x: 1.0 / (x.tokens * x.rows),
    "row means of rows with tokens": lambda x: 1.0 / (x.tokens * max(float((x.sums > 0).sum()), 1.0)),
    "sum of row means": lambda x: 1.0 / x.tokens,
    "token-mean": lambda x: 1.0 / x.every,
    "tokens times rows": lambda x: 1.0 / (x.every * x.rows),
    "constant": lambda x: 1.0 / (x.rows * x.limit),
    "constant, summed over rows": lambda x: 1.0 / x.limit,
    "tokens of the step": lambda x: (
        1.0 / (float(x.inputs["tokens_in_step"]) + x.eps if x.inputs.get("tokens_in_step") else x.every)
    ),
    "width": lambda x: 1.0 / (x.rows * x.width),
    "longest row": lambda x: 1.0 / (x.rows * max(float(x.sums.max()), 1.0)),
    "row-sum": lambda x: 1.0 / x.rows,
    "sum": lambda x: 1.0,  # noqa: ARG005
    "sum over the width": lambda x: 1.0 / x.width,
    "square roots": lambda x: 1.0 / (np.sqrt(x.tokens) * x.rows),
    "mean length": lambda x: 1.0 / (x.rows * max(float(x.sums.mean()), 1.0)),
    "constant of tokens": lambda x: 1.0 / (x.every * x.limit),
    "column means": lambda x: 1.0 / (x.columns * x.width),
    "tokens of the next row": lambda x: 1.0 / (x.tokens[np.roll(np.arange(x.rows), -1)] * x.rows),
}


def row_weights(counts: Array, kind: str, inputs: Mapping[str, Any], eps: float = 0.0) -> Array:
    """Return the weight of a token in each row, (B, 1), with a constant added to counts of tokens."""
    rows = len(counts)
    size = int(inputs.get("group_size") or rows)
    blocks = {"token-mean of prompts": [size] * (rows // size), "micro-batch": inputs.get("micro_batches")}.get(kind)
    if blocks:
        return _of_blocks(counts, blocks, eps)
    if kind in {"sum of micro-batches", "micro-batches by rows"}:
        parts = inputs["micro_batches"]
        shares = np.repeat(np.asarray(parts) / rows, parts)[:, None] if kind == "micro-batches by rows" else 1.0
        return np.asarray(_of_blocks(counts, parts) * len(parts) * shares)
    if kind in {"sum of prompts", "prompts by rows"}:
        return _of_blocks(counts, [size] * (rows // size)) * (rows // size) / (1 if kind == "sum of prompts" else rows)
    sums = counts.sum(axis=1).astype(np.float64)
    columns = np.maximum(counts.sum(axis=0, keepdims=True), 1.0)
    of_rows = np.maximum(sums, 1.0)[:, None] + eps
    weight = WEIGHTS[kind](Sizes(rows, counts.shape[1], of_rows, sums, columns, inputs, eps))
    return np.asarray(weight * np.ones((rows, 1)))


def _of_blocks(counts: Array, blocks: list[int], eps: float = 0.0) -> Array:
    ends = np.cumsum(blocks)
    counted = [max(float(counts[end - size : end].sum()), 1.0) + eps for end, size in zip(ends, blocks, strict=True)]
    return np.repeat(1.0 / np.asarray(counted), blocks)[:, None] / len(blocks)
