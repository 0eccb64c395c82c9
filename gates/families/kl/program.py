"""The forward formulas of the KL to the reference, composed of choices.

`token_kl`: the estimate of each token, clamped, times a ratio, reduced over a row. `full_kl`: a sum over the vocabulary.
Sources: docs/definitions.md, "KL to the reference" and "Full divergence"; J. Schulman, http://joschu.net/blog/kl-approx.html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.forms import accurate
from gates.arithmetic.functions import Value, absolute, clip, exp, expm1, log, maximum, plain, where
from gates.arithmetic.number import Floats
from gates.families.counts import Counted
from gates.families.kl import edits
from gates.families.kl import inputs as generators
from gates.families.limits import limits
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.rows import Grid, misread, tokens, total


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `token_kl` asks for."""
    off_policy = inputs.get("old") is not None
    return {
        "mask": "given",
        "numerator": "tokens",
        "direction": "given",
        "log_ratio": 1.0,
        "estimator": inputs["estimator"],
        "clamp": inputs.get("kl_clamp"),
        "clamped": "both",
        "kl_ratio": inputs.get("kl_ratio", "none") if off_policy else "none",
        "reduction": inputs["reduction"],
        "count_eps": 0.0,
        "sign": 1.0,
        "off_policy": off_policy,
    }


ESTIMATES: Mapping[str, Callable[[Value, Value, Value], Value]] = {  # functions of d, lp and ref
    "k1": lambda d, lp, ref: lp - ref,  # noqa: ARG005
    "k2": lambda d, lp, ref: d * d * 0.5,  # noqa: ARG005
    "k3": lambda d, lp, ref: exp(d) - d - 1.0,  # noqa: ARG005
    "k3 by expm1": lambda d, lp, ref: expm1(d) - d,  # noqa: ARG005
    "absolute": lambda d, lp, ref: absolute(d),  # noqa: ARG005
    "k2 doubled": lambda d, lp, ref: d * d,  # noqa: ARG005
    "k3 without −1": lambda d, lp, ref: exp(d) - d,  # noqa: ARG005
    "k3 with +1": lambda d, lp, ref: exp(d) - d + 1.0,  # noqa: ARG005
    "k3 with +d": lambda d, lp, ref: exp(d) + d - 1.0,  # noqa: ARG005
    "k3 without d": lambda d, lp, ref: exp(d) - 1.0,  # noqa: ARG005
    "k3 of −d in exp": lambda d, lp, ref: exp(-d) - d - 1.0,  # noqa: ARG005
    "k3 halved": lambda d, lp, ref: (exp(d) - d - 1.0) * 0.5,  # noqa: ARG005
    "ratio": lambda d, lp, ref: exp(d),  # noqa: ARG005
    "policy weighted": lambda d, lp, ref: exp(lp) * (lp - ref),  # noqa: ARG005
    "k3, policy weighted": lambda d, lp, ref: exp(lp) * (exp(d) - d - 1.0),  # noqa: ARG005
    "reference weighted": lambda d, lp, ref: exp(ref) * (ref - lp),  # noqa: ARG005
    "ratio weighted": lambda d, lp, ref: exp(-d) * (lp - ref),
    "inverse ratio weighted": lambda d, lp, ref: exp(d) * d,  # noqa: ARG005
    "of probabilities": lambda d, lp, ref: exp(lp) - exp(ref),  # noqa: ARG005
    "k3, reference weighted": lambda d, lp, ref: exp(ref) * (exp(d) - d - 1.0),  # noqa: ARG005
    "k1 squared": lambda d, lp, ref: absolute(d) * -d,  # noqa: ARG005
    "at least 0": lambda d, lp, ref: maximum(0.0, -d),  # noqa: ARG005
}


class Rows:
    """The tokens of a call as (B, T), with its choices."""

    def __init__(self, data: Data, chosen: Choices) -> None:
        self.data, self.chosen = data, chosen
        self.grid = Grid.of(data.inputs, "policy")
        self.counts = misread(self.grid.counts, chosen["mask"])
        self.lp, self.ref = (self.grid.lifted(data, name) for name in ("policy", "reference"))
        self.dtype = np.asarray(data["policy"]).dtype.name

    def clamped(self, value: Value, *, sides: str = "both") -> Value:
        """Clamp values on both sides, or on one: "above" or "below"."""
        c = self.chosen["clamp"]
        if c is None:
            return value
        limit = self.data.scalar(c, self.dtype)
        return clip(value, None if sides == "above" else -limit, None if sides == "below" else limit)

    def summed(self, old: Value) -> Value:
        """Return Σ (lp − old) of each row, (B, 1)."""
        return total(self.lp - old, self.counts)


RATIOS: Mapping[str, Callable[[Rows, Value], Value]] = {  # functions of the rows and the old log-probs
    "token": lambda rows, old: exp(rows.lp - old),
    "token, inverted": lambda rows, old: exp(old - rows.lp),
    "token, to the reference": lambda rows, old: exp(rows.lp - rows.ref),  # noqa: ARG005
    "token, clipped": lambda rows, old: clip(exp(rows.lp - old), 0.8, 1.2),
    "sequence": lambda rows, old: exp(rows.summed(old) / tokens(rows.counts)),
    "sequence, over the width": lambda rows, old: exp(rows.summed(old) / float(rows.counts.shape[1])),
    "sequence, sum": lambda rows, old: exp(rows.summed(old)),
    "sequence, inverted": lambda rows, old: exp(-rows.summed(old) / tokens(rows.counts)),
    "sequence, mean of ratios": lambda rows, old: total(exp(rows.lp - old), rows.counts) / tokens(rows.counts),
}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the KL of each token or row."""
    rows = Rows(data, chosen)
    lp, ref = _pair(rows)
    d, clamped = ref - lp, chosen["clamped"]
    if chosen["log_ratio"] != 1.0:
        d = d * chosen["log_ratio"]
        ref = lp + d
    if clamped == "log-ratio":
        d = rows.clamped(d)
        lp, ref = -d, d * 0.0
    kl = ESTIMATES[chosen["estimator"]](d, lp, ref)
    if clamped in {"both", "above", "below"}:
        kl = rows.clamped(kl, sides=clamped)
    if chosen["kl_ratio"] != "none":
        kl = kl * RATIOS[chosen["kl_ratio"]](rows, rows.grid.lifted(data, "old"))
    if clamped == "after the ratio":
        kl = rows.clamped(kl)
    summed = kl if chosen["numerator"] == "all" else where(rows.counts, kl, 0.0)
    reduced = REDUCTIONS[chosen["reduction"]](rows, summed * chosen["sign"])
    return {"kl": rows.clamped(reduced) if clamped == "after the reduction" else reduced}


def _pair(rows: Rows) -> tuple[Value, Value]:
    """Return the log-probs of the two policies, in the chosen direction."""
    kind = rows.chosen["direction"]
    if kind in {"to old", "of old"}:
        old = rows.grid.lifted(rows.data, "old")
        return (rows.lp, old) if kind == "to old" else (old, rows.ref)
    if kind == "of probabilities":
        return exp(rows.lp), exp(rows.ref)
    if kind in REFERENCES:
        return rows.lp, REFERENCES[kind](rows.ref)
    return (rows.lp, rows.ref) if kind == "given" else (rows.ref, rows.lp)


REFERENCES: Mapping[str, Callable[[Value], Value]] = {  # in the place of the reference log-probs, (B, T)
    "next token": lambda ref: ref[:, np.minimum(np.arange(ref.shape[1]) + 1, ref.shape[1] - 1)],
    "previous token": lambda ref: ref[:, np.maximum(np.arange(ref.shape[1]) - 1, 0)],
    "next row": lambda ref: ref[np.roll(np.arange(ref.shape[0]), -1)],
    "reference ignored": lambda ref: ref * 0.0,
    "added": lambda ref: -ref,
}


def _largest(rows: Rows, kl: Value) -> Value:
    column = np.where(rows.counts, plain(kl), -np.inf).argmax(axis=1)
    return kl[np.arange(len(column)), column]


REDUCTIONS: Mapping[str, Callable[[Rows, Value], Value]] = {
    "rows": lambda rows, kl: kl.sum(1) / float(len(rows.counts)),
    "largest": _largest,
    "last": lambda rows, kl: where(rows.counts & ~misread(rows.counts, "without last"), kl, 0.0).sum(1),
    "none": lambda rows, kl: rows.grid.back(kl),
    "sum": lambda rows, kl: kl.sum(1),  # noqa: ARG005
    "mean": lambda rows, kl: kl.sum(1) / (tokens(rows.counts)[:, 0] + rows.chosen["count_eps"]),
    "width": lambda rows, kl: kl.sum(1) / float(rows.counts.shape[1]),
    "longest": lambda rows, kl: kl.sum(1) / max(float(rows.counts.sum(axis=1).max()), 1.0),
    "given mask": lambda rows, kl: kl.sum(1) / tokens(rows.grid.counts)[:, 0],
    "mean length": lambda rows, kl: kl.sum(1) / max(float(rows.counts.sum(axis=1).mean()), 1.0),
    "square roots": lambda rows, kl: kl.sum(1) / np.sqrt(tokens(rows.counts)[:, 0]),
    "one less": lambda rows, kl: kl.sum(1) / np.maximum(tokens(rows.counts)[:, 0] - 1.0, 1.0),
    "one more": lambda rows, kl: kl.sum(1) / (tokens(rows.counts)[:, 0] + 1.0),
    "batch": lambda rows, kl: kl.sum() / max(float(rows.counts.sum()), 1.0),
    "mean of row means": lambda rows, kl: (kl.sum(1) / tokens(rows.counts)[:, 0]).mean(),
    "batch sum": lambda rows, kl: kl.sum(),  # noqa: ARG005
    "columns": lambda rows, kl: kl.sum(0),  # noqa: ARG005
}


TOKEN = Program(
    op="token_kl",
    asked=asked,
    compute=compute,
    edits=edits.of_tokens,
    inputs=generators.designed_tokens,
    outputs=("kl",),
    places=generators.places_of_tokens,
    presets=edits.token_presets,
    fitted=Counted(compute, edits.of_tokens, "", {"the count of tokens": ("count_eps",)}).fitted,
    rare=edits.clamps,
    examples=generators.examples,
    declares=edits.DECLARED,
)


def token_kl(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `kl`; TRL and verl write k3 with exp, others with expm1."""
    forms = ("k3", "k3 by expm1") if inputs["estimator"] == "k3" else (inputs["estimator"],)
    return limits(TOKEN, inputs, [{"estimator": form} for form in forms])


def asked_full(inputs: Inputs) -> Choices:  # noqa: ARG001  the op has no settings
    """Return the choices of `full_kl`."""
    return {"of": "policy", "term": "given", "ids": "all", "sum": "vocabulary", "times": 1.0, "logits": "given"}


def normalised(x: Value) -> Value:
    """Return the log-softmax over the last axis."""
    largest = plain(x).max(axis=-1, keepdims=True)
    return x - (log(exp(x - largest).sum(-1, keepdims=True)) + largest)


def _mixture(p: Value, q: Value) -> Value:
    middle = log((exp(p) + exp(q)) * 0.5)
    return (exp(p) * (p - middle) + exp(q) * (q - middle)) * 0.5


TERMS: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda p, q: exp(p) * p - exp(p) * q,
    "together": lambda p, q: exp(p) * (p - q),
    "not weighed": lambda p, q: p - q,
    "weighed by q": lambda p, q: exp(q) * (p - q),
    "cross-entropy": lambda p, q: -(exp(p) * q),
    "entropy": lambda p, q: -(exp(p) * p),  # noqa: ARG005
    "symmetric": lambda p, q: (exp(p) - exp(q)) * (p - q),
    "half symmetric": lambda p, q: (exp(p) - exp(q)) * (p - q) * 0.5,
    "mixture": _mixture,
    "absolute": lambda p, q: exp(p) * absolute(p - q),
    "squared": lambda p, q: exp(p) * (p - q) * (p - q) * 0.5,
    "squared, not weighed": lambda p, q: (p - q) * (p - q),
    "k3 not weighed": lambda p, q: exp(q - p) - (q - p) - 1.0,
    "k3 of p/q": lambda p, q: exp(p) * (exp(p - q) - (p - q) - 1.0),
    "total variation": lambda p, q: absolute(exp(p) - exp(q)) * 0.5,
    "entropies": lambda p, q: exp(p) * p - exp(q) * q,
    "k3 weighed by q": lambda p, q: exp(q) * (exp(q - p) - (q - p) - 1.0),
    "positive": lambda p, q: exp(p) * maximum(0.0, p - q),
    "hellinger": lambda p, q: (exp(p * 0.5) - exp(q * 0.5)) * (exp(p * 0.5) - exp(q * 0.5)),
    "chi-square": lambda p, q: (exp(p) - exp(q)) * (exp(p) - exp(q)) * exp(-q),
    "distance": lambda p, q: (exp(p) - exp(q)) * (exp(p) - exp(q)),
}
IDS: Mapping[str, slice] = {"all": slice(None), "without last": slice(None, -1), "without first": slice(1, None)}
SUMS: Mapping[str, Callable[[Value], Value]] = {
    "vocabulary": lambda term: term.sum(-1),
    "mean": lambda term: term.mean(-1),
    "one mean": lambda term: term.sum(-1).mean(),
    "one sum": lambda term: term.sum(),
    "one mean of all": lambda term: term.sum() / float(np.prod(term.shape)),
    "first row's mean": lambda term: term.sum() / float(term.shape[0]),
}


def compute_full(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the divergence of each position."""
    policy, reference = (np.asarray(data[name]) for name in ("policy_logprobs", "reference_logprobs"))
    if chosen["of"] == "reference":
        policy, reference = reference, policy
    possible = policy > -np.inf  # tokens that cannot be drawn are selected away
    p, q = (data.lift(np.where(possible, x, 0.0).astype(policy.dtype)) for x in (policy, reference))
    if chosen["logits"] != "given":
        p, q = (normalised(x / chosen["logits"]) for x in (p, q))
    kept = IDS[chosen["ids"]]
    p, q, add = p[..., kept], q[..., kept], SUMS[chosen["sum"]]

    def summed(term: Value) -> Value:
        return add(where(possible[..., kept], term, 0.0))

    if chosen["term"] == "cross-entropy less entropy":
        divergence = summed(exp(p) * p) - summed(exp(p) * q)
        divergence = accurate(divergence) if data.bounded else divergence
    else:
        divergence = summed(TERMS[chosen["term"]](p, q))
    if chosen["times"] == "temperature²":
        return {"kl": divergence * chosen["logits"] ** 2}
    return {"kl": divergence * data.scalar(chosen["times"], np.asarray(data["policy_logprobs"]).dtype.name)}


FULL = Program(
    op="full_kl",
    asked=asked_full,
    compute=compute_full,
    edits=edits.of_vocabulary,
    inputs=generators.designed_vocabulary,
    outputs=("kl",),
    places=generators.places_of_positions,
    presets=edits.vocabulary_presets,
)


def full_kl(**inputs: Any) -> dict[str, Floats]:
    """Return the textbook limits of `kl`, as in torch's `kl_div` with `log_target=True`, and as two sums."""
    return limits(FULL, inputs, [{"term": "together"}, {"term": "cross-entropy less entropy"}])


PROGRAMS = (TOKEN, FULL)
