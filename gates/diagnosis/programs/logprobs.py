"""The forward definition of the log-probs of ids with their entropy, and what people write instead.

Source: docs/definitions.md, "Log-probabilities".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, detached, exp, log, plain, where
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import logprobs_edits, logprobs_inputs
from gates.model import Array


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `selective_log_softmax` ask for."""
    return {
        "temperature": "divides",
        "tau": float(inputs["temperature"]),
        "ids": "given",
        "edge": "wraps",
        "value": "log-prob",
        "normaliser": "all",
        "entropy": "given",
        "entropy_tau": "same",
        "entropy_ids": "all",
        "ignored": "0" if inputs.get("ignore_index") is not None else "none",
        "several": np.ndim(inputs["ids"]) == np.ndim(inputs["logits"]),
        "positions": np.ndim(inputs["logits"]) - 1,
        "with_entropy": bool(inputs.get("entropy")),
    }


class Call:
    """Logits of a call as numbers, and ids as (…, K).

    Attributes:
        x: logits (…, V), as they came.
        each: ids (…, K).
        counts: (…, K), false where an id is ignored.
    """

    def __init__(self, data: Data, chosen: Choices, leaf: Value | None = None) -> None:
        logits, ids = np.asarray(data["logits"]), np.asarray(data["ids"])
        self.data, self.chosen, self.shape = data, chosen, ids.shape
        self.dtype = "float64" if logits.dtype == np.float64 else "float32"
        self.x = data.lift(logits, self.dtype) if leaf is None else leaf
        each = ids.reshape(*logits.shape[:-1], -1)
        ignored = data.get("ignore_index")
        counts = np.ones(each.shape, bool) if ignored is None else each != ignored
        if chosen["ignored"] == "wraps":
            each = np.where(counts, each, each % logits.shape[-1])
        self.counts, self.each = counts, np.where(counts | (each >= 0), each, 0)

    def scaled(self, how: str) -> Value:
        """Return the logits at the temperature."""
        tau = self.data.scalar(self.chosen["tau"], self.dtype)
        if how == "ignored":
            return self.x
        if how == "multiplies":
            return self.x * tau
        if how == "twice":
            return self.x / tau / tau
        return self.x / tau

    def picked(self, values: Value) -> Value:
        """Return the values (…, V) of the ids, (…, K)."""
        each = IDS[self.chosen["ids"]](self.each, values.shape[-1], plain(values))
        places = np.indices(each.shape)[:-1]
        return values[(*places, each)]


def _rolled(each: Array, by: int) -> Array:
    """Move ids along the last axis of positions."""
    return np.roll(each, by, axis=-2) if each.ndim > 1 else each


IDS: Mapping[str, Callable[[Array, int, Array], Array]] = {  # of ids, V and the values
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
    """Return log Σ exp over an axis, kept."""
    largest = plain(x).max(axis=axis, keepdims=True)
    return log(exp(x - largest).sum(axis, keepdims=True)) + largest


def _sum_of_all(x: Value) -> Value:
    largest = plain(x).max()
    return log(exp(x - largest).sum()) + largest


NORMALISERS: Mapping[str, Callable[[Call, Value], Value]] = {
    "all": lambda call, x: _sum(x),  # noqa: ARG005
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
}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the log-probs of the ids, and the entropy of each position; `variable` are the logits, or None."""
    call = Call(data, chosen, variable)
    how = chosen["temperature"]
    x = call.scaled("ignored" if how in {"of the log-prob", "times the log-prob"} else how)
    logps = x - NORMALISERS[chosen["normaliser"]](call, x)
    found = _value(call, x, logps)
    if chosen["ignored"] == "0":
        found = where(call.counts, found, 0.0)
    if chosen["edge"] == "0":
        column = np.arange(call.each.shape[-2])[:, None]
        found = where(column != (column[-1] if chosen["ids"] == "next" else 0), found, 0.0)
    result = {"logprobs": found.reshape(*call.shape)}
    if chosen["with_entropy"]:
        some = call.counts.any(axis=-1)
        entropy = _entropy(call, x, logps)
        result["entropy"] = where(some, entropy, 0.0) if chosen["ignored"] != "none" else entropy
    return result


def _value(call: Call, x: Value, logps: Value) -> Value:
    kind, how = call.chosen["value"], call.chosen["temperature"]
    found = call.picked(x if kind in {"logit", "shifted"} else logps)
    tau = call.data.scalar(call.chosen["tau"], call.dtype)
    if how in {"of the log-prob", "times the log-prob"}:
        found = found / tau if how == "of the log-prob" else found * tau
    if kind in UNITS:
        return found * call.data.scalar(UNITS[kind], call.dtype)
    if kind == "shifted":
        return found - plain(x).max(axis=-1, keepdims=True)
    if kind == "constant":  # of the gradient: the normaliser's part alone
        return found + detached(call.picked(x)) - call.picked(x)
    if kind == "summed":
        return found * 0.0 + found.sum(-1, keepdims=True)
    return exp(found) if kind == "probability" else found


UNITS: Mapping[str, float] = {"negated": -1.0, "bits": 1.0 / float(np.log(2.0)), "base 10": 1.0 / float(np.log(10.0))}


def _entropy(call: Call, x: Value, logps: Value) -> Value:
    chosen = call.chosen
    how, kind = chosen["entropy_tau"], chosen["entropy"]
    if how != "same" or chosen["normaliser"] != "all":
        x = x if how == "same" else call.scaled(how)
        logps = x - _sum(x)
    logps = logps[..., ENTROPY_IDS[chosen["entropy_ids"]]]
    p = exp(logps)
    if kind in ENTROPIES:
        return ENTROPIES[kind](call, x, logps, p)
    found = -(p * logps).sum(-1)
    return found * call.data.scalar(FACTORS[kind](logps.shape[-1], chosen["tau"]), call.dtype)


ENTROPIES: Mapping[str, Callable[[Call, Value, Value, Value], Value]] = {  # of the call, x, log p and p
    "not weighed": lambda call, x, logps, p: -logps.mean(-1),  # noqa: ARG005
    "mean": lambda call, x, logps, p: -(p * logps).mean(-1),  # noqa: ARG005
    "of the ids": lambda call, x, logps, p: -call.picked(x - _sum(x))[..., 0],  # noqa: ARG005
    "second order": lambda call, x, logps, p: -log((p * p).sum(-1)),  # noqa: ARG005
    "gini": lambda call, x, logps, p: 1.0 - (p * p).sum(-1),  # noqa: ARG005
    "perplexity": lambda call, x, logps, p: exp(-(p * logps).sum(-1)),  # noqa: ARG005
    "weighed": lambda call, x, logps, p: -(detached(p * logps) * x).sum(-1),  # noqa: ARG005  of the gradient
    "log-sum-exp": lambda call, x, logps, p: _sum(x)[..., 0],  # noqa: ARG005
}
FACTORS: Mapping[str, Callable[[int, float], float]] = {
    "given": lambda size, tau: 1.0,  # noqa: ARG005
    "negated": lambda size, tau: -1.0,  # noqa: ARG005
    "bits": lambda size, tau: 1.0 / float(np.log(2.0)),  # noqa: ARG005
    "share": lambda size, tau: 1.0 / float(np.log(size)),  # noqa: ARG005
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
    edits=logprobs_edits.edits,
    inputs=logprobs_inputs.designed,
    outputs=("logprobs", "entropy"),
    optional=frozenset(("entropy",)),
    places=logprobs_inputs.places,
    presets=logprobs_edits.presets,
    examples=logprobs_inputs.examples,
)
PROGRAMS = (PROGRAM,)  # its gradient is in logprobs_gradient
