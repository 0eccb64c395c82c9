"""The forward definition of the policy losses, and what people write instead.

A loss is a term of each token, the log-ratio's surrogate, plus β times a KL, averaged by an aggregation. Its gradient is the
derivative of what is computed: a mistake in one is in the other, as with autograd. Source: docs/definitions.md, "Policy losses".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.diagnosis.arithmetic import (
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
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import loss_edits, loss_inputs
from gates.diagnosis.programs.rows import Grid, misread, tokens, total
from gates.model import Array


CONSTANTS = (
    "group_size",
    "micro_batches",
    "max_length",
    "tokens_in_step",
    "old",
    "reference",
)  # that a call may leave out


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `policy_loss` ask for."""
    name = inputs["algorithm"]
    clipped = inputs.get("epsilon_low") is not None
    level = {"gspo": "row mean", "luspo": "row mean", "gspo-token": "row mean, token slope", "rloo": "row product"}
    surrogate = {"cispo": "cap", "sapo": "gate", "gmpo": "geometric"}
    return {
        "mask": "given",
        "log_ratio": "given" if inputs.get("old") is not None else "on-policy",
        "level": level.get(name, "token"),
        "surrogate": surrogate.get(name, "clip" if clipped else "product"),
        "pick": "min",
        "low": inputs.get("epsilon_low"),
        "high": inputs.get("epsilon_high"),
        "delta": inputs.get("delta"),
        "cap": inputs.get("cispo_bound"),
        "tau": (inputs.get("sapo_temperature_positive"), inputs.get("sapo_temperature_negative")),
        "advantages": "given",
        "weights": "given" if inputs.get("weights") is not None else "none",
        "beta": inputs["beta"],
        "estimator": inputs.get("kl_estimator") if inputs["beta"] else None,
        "kl": "given",
        "kl_ratio": inputs.get("kl_ratio") if inputs["beta"] else None,
        "kl_clamp": inputs.get("kl_clamp") if inputs["beta"] else None,
        "kl_mean": "same",
        "mean": _mean_asked(inputs),
        "numerator": "tokens",
        "sign": 1.0,
        "given": frozenset(name for name in CONSTANTS if inputs.get(name) is not None),
    }


def _mean_asked(inputs: Inputs) -> str:
    name = inputs["algorithm"]
    if name in {"dapo", "cispo"}:
        return {"global": "tokens", "group": "prompt tokens", "trl": "tokens of the step"}[inputs["dapo_denominator"]]
    return {"bnpo-trl": "micro-batch tokens", "dr_grpo": "constant", "luspo": "row sums"}.get(name, "row means")


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    grid = Grid.of(data.inputs, "policy")
    counts = misread(grid.counts, chosen["mask"])
    lp = grid.wide(variable)
    step = _Step(data, grid, counts, lp, chosen)
    term = _weighted(step, step.surrogate())
    policy = _mean(where(counts, term, 0.0) if chosen["numerator"] == "tokens" else term, step, chosen["mean"])
    result = policy * chosen["sign"]
    if chosen["beta"]:
        result = result + _penalty(step)
    return {"loss": result}


class _Step:
    """One step's tokens as (B, T), with the choices that read them."""

    def __init__(self, data: Data, grid: Grid, counts: Array, lp: Value, chosen: Choices) -> None:
        self.data, self.grid, self.counts, self.lp, self.chosen = data, grid, counts, lp, chosen
        self.tokens = tokens(counts)
        self.dtype = np.asarray(data["policy"]).dtype.name

    def constant(self, value: float) -> Value:
        return self.data.scalar(value, self.dtype)

    def advantages(self) -> Value:
        given = self.grid.lifted(self.data, "advantages")
        choice = self.chosen["advantages"]
        if choice in {"negated", "absolute"}:
            return -given if choice == "negated" else absolute(given)
        if choice == "next row":
            return given[np.roll(np.arange(len(self.counts)), -1)]
        if choice in {"next token", "last token"}:
            last = np.maximum(self.counts.sum(axis=1) - 1, 0)[:, None]
            columns = np.arange(self.counts.shape[1])
            index = (
                np.minimum(columns + 1, columns[-1])
                if choice == "next token"
                else np.broadcast_to(last, self.counts.shape)
            )
            return given[np.arange(len(self.counts))[:, None], index]
        if choice == "positive":
            return maximum(given, 0.0)
        if choice == "ones":
            return given * 0.0 + 1.0
        if choice in {"whitened", "whitened by tokens", "centred"}:
            return _whitened(given, self.counts if choice == "whitened by tokens" else None, scaled=choice != "centred")
        return given

    def log_ratio(self) -> Value:
        choice = self.chosen["log_ratio"]
        if choice == "on-policy":
            return self.lp - detached(self.lp)
        other = self.data.get("reference" if choice == "reference" else "old")
        old = detached(self.lp) if other is None else self.grid.wide(self.data.lift(other))
        if choice == "old next token":
            old = old[:, np.minimum(np.arange(1, self.counts.shape[1] + 1), self.counts.shape[1] - 1)]
        if choice == "inverted":
            return old - self.lp
        return (detached(self.lp) if choice == "detached" else self.lp) - old

    def ratio(self, level: str, log_ratio: Value) -> Value:
        """Return r of each slot: (B, T), or (B, 1) for a level of the row."""
        if level == "token":
            return exp(log_ratio)
        if level == "first order":
            return log_ratio + 1.0
        if level == "log":
            return log_ratio
        if level == "mean of ratios":
            return total(exp(log_ratio), self.counts) / self.tokens
        divisor = {"row product": 1.0, "row mean over the width": float(self.counts.shape[1])}.get(level, self.tokens)
        mean = exp(total(log_ratio, self.counts) / divisor)
        if level == "row mean, token slope":
            return detached(mean) * exp(self.lp - detached(self.lp))
        return detached(mean) if level == "row mean, no slope" else mean

    def surrogate(self) -> Value:
        """Return the term of each token, which is minimised."""
        chosen, a, log_ratio = self.chosen, self.advantages(), self.log_ratio()
        if chosen["surrogate"] == "geometric":
            return _geometric(self, a, log_ratio)
        if chosen["surrogate"] == "log-prob":
            return -(self.lp * a)
        r = self.ratio(chosen["level"], log_ratio)
        if chosen["surrogate"] == "cap":
            return _capped(self, a, r)
        if chosen["surrogate"] == "gate":
            return _gated(self, a, r, log_ratio)
        if chosen["surrogate"] == "product":
            return -(r * a)
        if chosen["surrogate"] == "clipped logarithm":
            high = None if chosen["high"] is None else self.constant(chosen["high"])
            low = None if chosen["low"] is None else -self.constant(chosen["low"])
            return -minimum(r * a, exp(clip(log_ratio, low, high)) * a)
        return _clipped(self, a, r)


def _whitened(values: Value, counts: Array | None, *, scaled: bool) -> Value:
    """Return the values less their mean, over their deviation, over the batch's rows or its tokens."""
    picked = values[:, 0] if counts is None else values[counts]
    centre = picked.mean()
    if not scaled:
        return values - centre
    off = picked - centre
    deviation = sqrt((off * off).sum() / max(float(picked.shape[0]) - 1.0, 1.0))
    return (values - centre) / (deviation + 1e-8)


def _bounds(step: _Step) -> tuple[Value | None, Value | None]:
    low, high = step.chosen["low"], step.chosen["high"]
    return None if low is None else 1.0 - step.constant(low), None if high is None else 1.0 + step.constant(high)


def _clipped(step: _Step, a: Value, r: Value) -> Value:
    chosen = step.chosen
    low, high = _bounds(step)
    bounded = r if chosen["delta"] is None else minimum(r, step.constant(chosen["delta"]))
    free, held = bounded * a, clip(r, low, high) * a
    pick = chosen["pick"]
    if pick == "free":
        return -free
    if pick == "held":
        return -held
    if pick == "straight through":  # the clip acts on the value, the gradient passes
        return -((detached(clip(r, low, high) - r) + r) * a)
    if pick == "max":
        return -maximum(free, held)
    if pick == "min, A > 0 only":
        return -where(plain(a) > 0.0, minimum(free, held), free)
    if pick == "no gradient where clipped, value kept":
        inside = plain(minimum(free, held)) == plain(free)
        return -where(inside, free, detached(free))
    return -minimum(free, held)


def _capped(step: _Step, a: Value, r: Value) -> Value:
    chosen = step.chosen
    width = step.constant(chosen["high"])
    bound = {"relative": 1.0 + width, "absolute": width}.get(chosen["cap"])
    held = r if bound is None else minimum(r, bound)
    if chosen["low"] is not None:
        held = maximum(held, 1.0 - step.constant(chosen["low"]))
    if chosen["pick"] == "alive":
        return -(held * a * step.lp)
    if chosen["pick"] == "without log-prob":
        return -(held * a)
    return -(detached(held) * a * step.lp)


def _gated(step: _Step, a: Value, r: Value, log_ratio: Value) -> Value:
    up, down = (step.constant(x) for x in step.chosen["tau"])
    tau = where(plain(a) > 0.0, up, down)
    moved = {"log": log_ratio, "uncentred": r}.get(step.chosen["pick"], r - 1.0)
    factor = {"no factor": 1.0, "factor 4": 4.0, "factor 2/τ": 2.0 / tau, "factor 1/τ": 1.0 / tau}.get(
        step.chosen["pick"], 4.0 / tau
    )
    return -(sigmoid(tau * moved) * factor * a)


def _geometric(step: _Step, a: Value, log_ratio: Value) -> Value:
    chosen = step.chosen
    low = None if chosen["low"] is None else -step.constant(chosen["low"])
    high = None if chosen["high"] is None else step.constant(chosen["high"])
    good = plain(a) > 0.0
    if chosen["pick"] == "both":
        q = clip(log_ratio, low, high)
    elif chosen["pick"] == "other side":
        q = where(good, clip(log_ratio, low, None), clip(log_ratio, None, high))
    else:
        q = where(good, clip(log_ratio, None, high), clip(log_ratio, low, None))
    if chosen["level"] == "mean of ratios":
        return -(total(exp(q), step.counts) / step.tokens * a)
    divisor = 1.0 if chosen["level"] == "row product" else step.tokens
    return -(exp(total(q, step.counts) / divisor) * a)


def _weighted(step: _Step, term: Value) -> Value:
    choice = step.chosen["weights"]
    if choice == "none" or step.data.get("weights") is None:
        return term
    weights = step.grid.lifted(step.data, "weights")
    return term * (weights * weights if choice == "squared" else weights)


def _penalty(step: _Step) -> Value:
    chosen, counts = step.chosen, step.counts
    other = step.data.get("old" if chosen["kl"] == "old" else "reference")
    reference = detached(step.lp) if other is None else step.grid.wide(step.data.lift(other))
    lp = detached(step.lp) if chosen["kl"] == "detached" else step.lp
    d = lp - reference if chosen["kl"] == "inverted" else reference - lp
    estimate = {
        "k1": lambda: -d,
        "k2": lambda: d * d * 0.5,
        "k2 doubled": lambda: d * d,
        "k3": lambda: exp(d) - d - 1.0,
        "k3 without −1": lambda: exp(d) - d,
        "k3 with k2's gradient": lambda: detached(exp(d) - d - 1.0 - d * d * 0.5) + d * d * 0.5,
        "k1 with k2's gradient": lambda: detached(-d - d * d * 0.5) + d * d * 0.5,
        "absolute": lambda: absolute(d),
        "full ratio": lambda: exp(-d) * -d,
    }[chosen["estimator"]]()
    if chosen["kl_clamp"] is not None:
        limit = step.constant(chosen["kl_clamp"])
        estimate = clip(estimate, -limit, limit)
    if chosen["kl_ratio"] != "none":
        level = {"token": "token", "sequence": "row mean", "token, no slope": "token"}[chosen["kl_ratio"]]
        old = step.data.get("old")
        log_ratio = step.lp - (detached(step.lp) if old is None else step.grid.wide(step.data.lift(old)))
        r = step.ratio(level, log_ratio)
        estimate = (detached(r) if chosen["kl_ratio"] == "token, no slope" else r) * estimate
    if chosen["kl"] == "times advantages":
        estimate = estimate * step.advantages()
    if chosen["weights"] == "on the KL too":
        estimate = _weighted(step, estimate)
    if chosen["kl"] != "padding too":
        estimate = where(counts, estimate, 0.0)
    mean = chosen["mean"] if chosen["kl_mean"] == "same" else chosen["kl_mean"]
    return _mean(estimate, step, mean) * step.constant(chosen["beta"])


def _mean(term: Value, step: _Step, kind: str) -> Value:
    """Return the mean of (B, T) terms, 0 where none stands."""
    if kind == "mean of prompts' row sums":
        kind = "row sums"
    if len(term.shape) != 2 or term.shape[1] != step.counts.shape[1]:
        term = term * np.ones(step.counts.shape)
    weights = row_weights(step.counts, kind, step.data.inputs)
    return (term * weights).sum()


def row_weights(counts: Array, kind: str, inputs: Mapping[str, Any]) -> Array:
    """Return what a token of each row weighs, (B, 1)."""
    rows, width, n = len(counts), counts.shape[1], tokens(counts)
    ones = np.ones((rows, 1))
    every = max(float(counts.sum()), 1.0)
    group = int(inputs.get("group_size") or rows)
    blocks = {
        "prompt tokens": [group] * (rows // group),
        "micro-batch tokens": inputs.get("micro_batches"),
    }.get(kind)
    if blocks:
        ends = np.cumsum(blocks)
        held = [max(float(counts[end - size : end].sum()), 1.0) for end, size in zip(ends, blocks, strict=True)]
        return np.repeat(1.0 / np.asarray(held), blocks)[:, None] / len(blocks)
    return {
        "row means": lambda: 1.0 / (n * rows),
        "row means of rows with tokens": lambda: 1.0 / (n * max(float((counts.sum(axis=1) > 0).sum()), 1.0)),
        "sum of row means": lambda: 1.0 / n,
        "tokens": lambda: ones / every,
        "tokens times rows": lambda: ones / (every * rows),
        "constant": lambda: ones / (rows * float(inputs.get("max_length") or width)),
        "constant, summed over rows": lambda: ones / float(inputs.get("max_length") or width),
        "tokens of the step": lambda: ones / float(inputs.get("tokens_in_step") or every),
        "width": lambda: ones / (rows * width),
        "longest row": lambda: ones / (rows * max(float(counts.sum(axis=1).max()), 1.0)),
        "row sums": lambda: ones / rows,
        "sum": lambda: ones,
        "sum over the width": lambda: ones / width,
        "square roots": lambda: 1.0 / (np.sqrt(n) * rows),
        "mean length": lambda: ones / (rows * max(float(counts.sum(axis=1).mean()), 1.0)),
    }[kind]()


PROGRAM = Program(
    op="policy_loss",
    asked=asked,
    compute=compute,
    edits=loss_edits.edits,
    inputs=loss_inputs.designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=loss_inputs.places,
    presets=loss_edits.presets,
)
PROGRAMS = (PROGRAM,)
