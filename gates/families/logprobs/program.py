"""The forward formula of log-probs of ids and of the entropy of each position, composed of choices.

Half-precision logits are computed in float32. A token that cannot be drawn (−∞) has weight 0. Source: docs/definitions.md,
"Log-probabilities".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, detached, exp, log, logsigmoid, maximum, plain, where
from gates.arithmetic.number import Floats, Number
from gates.families.limits import limits
from gates.families.logprobs import edits
from gates.families.logprobs import inputs as generators
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array

FORMS = ("divide, shift", "shift, divide", "log-sum-exp", "logarithm")  # of a log-softmax in libraries
ENTROPY_FORMS = ("given", "log-sum less mean", "log-sum-exp less mean")


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `selective_log_softmax` asks for."""
    return {
        "temperature": "divides",
        "tau": float(inputs["temperature"]),
        "ids": "given",
        "edge": "wraps",
        "value": "log-prob",
        "normaliser": "all",
        "form": "log-sum-exp",
        "entropy": "given",
        "entropy_tau": "same",
        "entropy_ids": "all",
        "ignored": "0" if inputs.get("ignore_index") is not None else "none",
        "several": np.ndim(inputs["ids"]) == np.ndim(inputs["logits"]),
        "positions": np.ndim(inputs["logits"]) - 1,
        "with_entropy": bool(inputs.get("entropy")),
    }


class Call:
    """The logits of a call as numbers, and its ids as (…, K).

    Attributes:
        x: logits (…, V), 0 where a token cannot be drawn.
        possible: (…, V), false where a token cannot be drawn.
        each: ids (…, K).
        counts: (…, K), false where an id is ignored.
    """

    def __init__(self, data: Data, chosen: Choices) -> None:
        logits, ids = np.asarray(data["logits"]), np.asarray(data["ids"])
        self.data, self.chosen, self.shape = data, chosen, ids.shape
        self.dtype = "float64" if logits.dtype == np.float64 else "float32"
        possible = np.asarray(logits > -np.inf)  # false for NaN, which stands where no id is read
        self.x = data.lift(np.where(possible, logits, 0.0), self.dtype)
        self.possible = possible | ~possible.any(axis=-1, keepdims=True)
        each = ids.reshape(*logits.shape[:-1], -1)
        ignored = data.get("ignore_index")
        counts = np.ones(each.shape, bool) if ignored is None else each != ignored
        if chosen["ignored"] == "wraps":
            each = np.where(counts, each, each % logits.shape[-1])
        self.counts, self.each = counts, np.where(counts | (each >= 0), each, 0)

    @property
    def tau(self) -> Value:
        """The temperature."""
        return self.data.scalar(self.chosen["tau"], self.dtype)

    def scaled(self, how: str) -> Value:
        """Return the logits at the temperature, applied as `how` says."""
        if how == "ignored" or self.chosen["tau"] == 1.0:
            return self.x
        if how == "multiplies":
            return self.x * self.tau
        if how == "root":
            return self.x / self.data.scalar(self.chosen["tau"] ** 0.5, self.dtype)
        return self.x / self.tau / self.tau if how == "twice" else self.x / self.tau

    def picked(self, values: Value) -> Value:
        """Gather values (…, V) at the ids, (…, K)."""
        each = IDS[self.chosen["ids"]](self.each, values.shape[-1], plain(values))
        positions = np.indices(each.shape)[:-1]
        return values[(*positions, each)]

    def kept(self, values: Value) -> Value:
        """Return values (…, V), 0 for tokens that cannot be drawn, so that p log p adds nothing."""
        return where(self.possible, values, 0.0)

    def largest(self, x: Value) -> Array:
        """Return the largest logit of each position, as a constant, since the result does not depend on the offset."""
        return np.asarray(np.max(np.where(self.possible, plain(x), -np.inf), axis=-1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class LogSoftmax:
    """One form of a log-softmax: log p and p (…, V), shifted logits z, log Σ exp z, logits x/τ, and log Σ exp of these."""

    logps: Value
    p: Value
    z: Value
    log_sum: Value
    scaled: Value
    log_sum_exp: Value


def log_softmax(call: Call, x: Value, form: str) -> LogSoftmax:
    """Return the log-softmax of logits (…, V) in one of `FORMS`."""
    largest = call.largest(x)
    z = x - largest
    if form == "shift, divide":
        z = (call.x - call.largest(call.x)) / call.tau
    weights = call.kept(exp(z))
    total = weights.sum(-1, keepdims=True)
    if form in {"divide, shift", "shift, divide"}:
        log_sum = log(total)
        return LogSoftmax(call.kept(z - log_sum), weights / total, z, log_sum, x, log_sum + largest)
    log_sum_exp = log(total) + largest
    if form == "log-sum-exp":
        logps = call.kept(x - log_sum_exp)
        return LogSoftmax(logps, call.kept(exp(logps)), z, log(total), x, log_sum_exp)
    p = weights / total
    positive = plain(p) > 0.0
    logps = call.kept(log(where(call.possible & positive, p, 1.0)))
    if isinstance(logps, Number):
        logps.void = logps.void | (call.possible & ~positive)
    return LogSoftmax(logps, p, z, log(total), x, log_sum_exp)


def _rolled(each: Array, by: int) -> Array:
    """Shift ids along the last axis of positions."""
    return np.roll(each, by, axis=-2) if each.ndim > 1 else each


IDS: Mapping[str, Callable[[Array, int, Array], Array]] = {  # functions of ids, V and values
    "given": lambda each, size, values: each,  # noqa: ARG005
    "next": lambda each, size, values: _rolled(each, -1),  # noqa: ARG005
    "previous": lambda each, size, values: _rolled(each, 1),  # noqa: ARG005
    "one higher": lambda each, size, values: (each + 1) % size,  # noqa: ARG005
    "one lower": lambda each, size, values: (each - 1) % size,  # noqa: ARG005
    "likeliest": lambda each, size, values: np.broadcast_to(values.argmax(axis=-1)[..., None], each.shape),  # noqa: ARG005
    "first of each": lambda each, size, values: np.broadcast_to(each[..., :1], each.shape),  # noqa: ARG005
    "first position": lambda each, size, values: np.broadcast_to(each[..., :1, :], each.shape),  # noqa: ARG005
}


def _sum(x: Value, axis: int = -1) -> Value:
    """Return log Σ exp over an axis, which is kept."""
    largest = plain(x).max(axis=axis, keepdims=True)
    return log(exp(x - largest).sum(axis, keepdims=True)) + largest


def _sum_of_all(x: Value) -> Value:
    largest = plain(x).max()
    return log(exp(x - largest).sum()) + largest


NORMALISERS: Mapping[str, Callable[[Call, Value], Value]] = {
    "without last": lambda call, x: _sum(x[..., :-1]),  # noqa: ARG005
    "without first": lambda call, x: _sum(x[..., 1:]),  # noqa: ARG005
    "batch": lambda call, x: _sum_of_all(x),  # noqa: ARG005
    "positions": lambda call, x: _sum(x, -2) if len(x.shape) > 1 else _sum(x),  # noqa: ARG005
    "rows": lambda call, x: _sum(x, 0) if len(x.shape) > 1 else _sum(x),  # noqa: ARG005
    "largest": lambda call, x: x * 0.0 + plain(x).max(axis=-1, keepdims=True),  # noqa: ARG005
    "mean": lambda call, x: _sum(x) - float(np.log(x.shape[-1])),  # noqa: ARG005
    "of the ids": lambda call, x: _sum(call.picked(x)),
    "untempered": lambda call, x: _sum(call.x),  # noqa: ARG005
    "nothing": lambda call, x: x * 0.0,  # noqa: ARG005
    "constant": lambda call, x: detached(_sum(x)),  # noqa: ARG005  of the gradient
    "with 0": lambda call, x: log(exp(_sum(x)) + 1.0),  # noqa: ARG005
    "without the id": lambda call, x: log(exp(_sum(x)) - exp(call.picked(x)).sum(-1, keepdims=True)),
    "plain mean": lambda call, x: x.mean(-1).reshape(*x.shape[:-1], 1),  # noqa: ARG005
    "first position": lambda call, x: _sum(x)[..., np.zeros(x.shape[-2], np.int64), :],  # noqa: ARG005
    "next": lambda call, x: _sum(x)[..., np.roll(np.arange(x.shape[-2]), -1), :],  # noqa: ARG005
}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  gradient.py differentiates
    """Return the log-probs of the ids, and the entropy of each position."""
    return outputs(Call(data, chosen))


def outputs(call: Call) -> dict[str, Value]:
    """Return the outputs of a call, by name."""
    chosen, how = call.chosen, call.chosen["temperature"]
    x = call.scaled("ignored" if how in {"of the log-prob", "times the log-prob"} else how)
    soft = log_softmax(call, x, chosen["form"])
    logps = soft.logps if chosen["normaliser"] == "all" else x - NORMALISERS[chosen["normaliser"]](call, x)
    value = _value(call, x, logps)
    if chosen["ignored"] == "0":
        value = where(call.counts, value, 0.0)
    if chosen["edge"] == "0":
        column = np.arange(call.each.shape[-2])[:, None]
        value = where(column != (column[-1] if chosen["ids"] == "next" else 0), value, 0.0)
    result = {"logprobs": value.reshape(*call.shape)}
    if chosen["with_entropy"]:
        some = call.counts.any(axis=-1)
        entropy = _entropy(call, soft)
        result["entropy"] = where(some, entropy, 0.0) if chosen["ignored"] != "none" else entropy
    return result


def _value(call: Call, x: Value, logps: Value) -> Value:
    kind, how = call.chosen["value"], call.chosen["temperature"]
    value = call.picked(x if kind in {"logit", "shifted"} else logps)
    if how in {"of the log-prob", "times the log-prob"}:
        value = value / call.tau if how == "of the log-prob" else value * call.tau
    if kind in UNITS:
        return value * call.data.scalar(UNITS[kind], call.dtype)
    if kind in CHANGED:
        return CHANGED[kind](call, x, value)
    return OF_P[kind](exp(value)) if kind in OF_P else value


CHANGED: Mapping[str, Callable[[Call, Value, Value], Value]] = {  # functions of call, x/τ and the value of the id
    "shifted": lambda call, x, value: value - plain(x).max(axis=-1, keepdims=True),  # noqa: ARG005
    "at least −10": lambda call, x, value: maximum(value, -10.0),  # noqa: ARG005
    "sigmoid": lambda call, x, value: logsigmoid(call.picked(x)),  # noqa: ARG005
    "constant": lambda call, x, value: value + detached(call.picked(x)) - call.picked(x),  # the normaliser's gradient
    "summed": lambda call, x, value: value * 0.0 + value.sum(-1, keepdims=True),  # noqa: ARG005
    "untempered": lambda call, x, value: value + call.picked(call.x) - call.picked(x),
}


OF_P: Mapping[str, Callable[[Value], Value]] = {  # functions of the probability of the id
    "probability": lambda p: p,
    "p + 1e-8": lambda p: log(p + 1e-8),
    "p + 1e-6": lambda p: log(p + 1e-6),
    "p + 1e-10": lambda p: log(p + 1e-10),
    "log-odds": lambda p: log(p) - log(1.0 - p),
    "log of the rest": lambda p: log(1.0 - p),
    "weighed": lambda p: p * log(p),
}


UNITS: Mapping[str, float] = {"negated": -1.0, "bits": 1.0 / float(np.log(2.0)), "base 10": 1.0 / float(np.log(10.0))}


def _entropy(call: Call, soft: LogSoftmax) -> Value:
    chosen = call.chosen
    if chosen["entropy_tau"] != "same":
        soft = log_softmax(call, call.scaled(chosen["entropy_tau"]), chosen["form"])
    ids = ENTROPY_IDS[chosen["entropy_ids"]]
    logps, p, kind = soft.logps[..., ids], soft.p[..., ids], chosen["entropy"]
    if kind in SLOPES:
        return -call.kept(detached(SLOPES[kind](logps, p)) * soft.scaled).sum(-1)
    if kind in ENTROPIES:
        return ENTROPIES[kind](call, soft, logps, p)
    entropy = -(p * logps).sum(-1)
    if kind in FACTORS:
        return entropy * call.data.scalar(FACTORS[kind](logps.shape[-1], chosen["tau"]), call.dtype)
    return entropy


ENTROPIES: Mapping[
    str, Callable[[Call, LogSoftmax, Value, Value], Value]
] = {  # functions of call, softmax, log p and p
    "not weighed": lambda call, soft, logps, p: -logps.mean(-1),  # noqa: ARG005
    "mean": lambda call, soft, logps, p: -(p * logps).mean(-1),  # noqa: ARG005
    "of the ids": lambda call, soft, logps, p: -call.picked(logps)[..., 0],  # noqa: ARG005
    "second order": lambda call, soft, logps, p: -log((p * p).sum(-1)),  # noqa: ARG005
    "gini": lambda call, soft, logps, p: 1.0 - (p * p).sum(-1),  # noqa: ARG005
    "of the ids, weighed": lambda call, soft, logps, p: -(exp(call.picked(logps)) * call.picked(logps)).sum(-1),  # noqa: ARG005
    "at the ids": lambda call, soft, logps, p: -(p * logps).sum(-1) * call.picked(p)[..., 0],  # noqa: ARG005
    "less the largest": lambda call, soft, logps, p: soft.log_sum[..., 0],  # noqa: ARG005
    "to the uniform": lambda call, soft, logps, p: (p * logps).sum(-1) + float(np.log(logps.shape[-1])),  # noqa: ARG005
    "uncertainty of the likeliest": lambda call, soft, logps, p: 1.0 - exp(-soft.log_sum[..., 0]),  # noqa: ARG005
    "perplexity": lambda call, soft, logps, p: exp(-(p * logps).sum(-1)),  # noqa: ARG005
    "log-sum-exp": lambda call, soft, logps, p: soft.log_sum_exp[..., 0],  # noqa: ARG005
    "log-sum less mean": lambda call, soft, logps, p: soft.log_sum[..., 0] - (p * soft.z).sum(-1),  # noqa: ARG005
    "log-sum-exp less mean": lambda call, soft, logps, p: soft.log_sum_exp[..., 0] - (p * soft.scaled).sum(-1),  # noqa: ARG005
}
SLOPES: Mapping[str, Callable[[Value, Value], Value]] = {  # functions of log p and p: minus the gradient by x/τ
    "weighed": lambda logps, p: p * logps,
    "weighed, 1": lambda logps, p: p * (logps + 1.0),
    "centred, not weighed": lambda logps, p: logps - (p * logps).sum(-1, keepdims=True),
    "weighed, −H": lambda logps, p: p * (logps + (p * logps).sum(-1, keepdims=True)),
    "weighed, 1 − p": lambda logps, p: p * (1.0 - p) * (logps - (p * logps).sum(-1, keepdims=True)),
    "by p": lambda logps, p: logps + 1.0,  # noqa: ARG005
}
FACTORS: Mapping[str, Callable[[int, float], float]] = {
    "negated": lambda size, tau: -1.0,  # noqa: ARG005
    "bits": lambda size, tau: 1.0 / float(np.log(2.0)),  # noqa: ARG005
    "share": lambda size, tau: 1.0 / float(np.log(size)),  # noqa: ARG005
    "base 10": lambda size, tau: 1.0 / float(np.log(10.0)),  # noqa: ARG005
    "times V": lambda size, tau: float(size),  # noqa: ARG005
    "over τ": lambda size, tau: 1.0 / tau,  # noqa: ARG005
    "times τ": lambda size, tau: tau,  # noqa: ARG005
}
ENTROPY_IDS: Mapping[str, slice] = {
    "all": slice(None),
    "without last": slice(None, -1),
    "without first": slice(1, None),
}
PROGRAM = Program(
    op="selective_log_softmax",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=generators.designed,
    outputs=("logprobs", "entropy"),
    optional=frozenset(("entropy",)),
    places=generators.places,
    presets=edits.presets,
    examples=generators.examples,
)
PROGRAMS = (PROGRAM,)


def forms(inputs: Inputs) -> Iterator[str]:
    """Yield the forms of a log-softmax that differ at the temperature."""
    yield from (form for form in FORMS if inputs["temperature"] != 1.0 or form != "shift, divide")


def selective_log_softmax(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `logprobs`, in the shape of the ids."""
    return limits(PROGRAM, inputs, [{"form": form, "with_entropy": False} for form in forms(inputs)])


def with_entropy(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `logprobs` and `entropy` (…)."""
    both = [{"form": form, "entropy": kind} for form in forms(inputs) for kind in ENTROPY_FORMS]
    return limits(PROGRAM, inputs, [{**form, "with_entropy": True} for form in both])
