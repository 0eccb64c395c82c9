"""The forward definition of the KL over the whole vocabulary, and what people write instead.

Source: docs/definitions.md, "Full divergence".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, exp, log, plain
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.model import Array

SHAPES = ((2, 3, 7), (3, 2, 11), (4, 2, 5), (2, 4, 17), (1, 3, 9), (3, 3, 13), (2, 2, 29), (5, 1, 8))
"""Rows, tokens and vocabulary: no two vocabularies are alike, so that no mean is a scale."""


def asked(inputs: Inputs) -> Choices:  # noqa: ARG001  the op has no settings
    """Return the choices of `full_kl`."""
    return {"of": "policy", "term": "given", "ids": "all", "sum": "vocabulary", "times": 1.0, "logits": "given"}


def normalised(x: Value) -> Value:
    """Return log-probs of logits, over the last axis."""
    largest = plain(x).max(axis=-1, keepdims=True)
    return x - (log(exp(x - largest).sum(-1, keepdims=True)) + largest)


def _mixture(p: Value, q: Value) -> Value:
    middle = log((exp(p) + exp(q)) * 0.5)
    return (exp(p) * (p - middle) + exp(q) * (q - middle)) * 0.5


TERMS: Mapping[str, Callable[[Value, Value], Value]] = {
    "given": lambda p, q: exp(p) * p - exp(p) * q,
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


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the divergence of each position."""
    p, q = (data.lift(data[name]) for name in ("policy_logprobs", "reference_logprobs"))
    if chosen["of"] == "reference":
        p, q = q, p
    if chosen["logits"] != "given":
        p, q = (normalised(x / chosen["logits"]) for x in (p, q))
    kept = IDS[chosen["ids"]]
    found = SUMS[chosen["sum"]](TERMS[chosen["term"]](p[..., kept], q[..., kept]))
    if chosen["times"] == "temperature²":
        return {"kl": found * chosen["logits"] ** 2}
    return {"kl": found * data.scalar(chosen["times"], np.asarray(data["policy_logprobs"]).dtype.name)}


WORDS: Mapping[str, Mapping[str, str]] = {
    "of": {"reference": "KL(reference ‖ policy), the arguments exchanged"},
    "term": {
        "not weighed": "Σ (log p − log q), not weighed by p",
        "weighed by q": "Σ q (log p − log q), weighed by the reference",
        "cross-entropy": "the cross-entropy −Σ p log q",
        "entropy": "the entropy −Σ p log p",
        "symmetric": "KL(p ‖ q) + KL(q ‖ p)",
        "half symmetric": "the mean of KL(p ‖ q) and KL(q ‖ p)",
        "mixture": "the Jensen–Shannon divergence",
        "absolute": "Σ p |log p − log q|",
        "squared": "k2 under the policy: Σ p (log p − log q)²/2",
        "squared, not weighed": "Σ (log p − log q)², not weighed by p",
        "k3 not weighed": "k3 of every id, not weighed by p",
        "k3 of p/q": "k3 under the policy with its argument inverted",
        "total variation": "the total variation Σ |p − q|/2",
    },
    "ids": {"without last": "the last id of the vocabulary left out", "without first": "the first id left out"},
    "sum": {
        "mean": "the mean over the vocabulary, not the sum",
        "one mean": "one mean over all positions",
        "one sum": "one sum over all positions",
        "one mean of all": "one mean over all positions and ids",
        "first row's mean": "one sum over everything, over the rows (reduction batchmean)",
    },
}


def edits(chosen: Choices) -> Iterator[Edit]:
    """Yield the edits of a divergence."""
    mixture = WORDS["term"]["mixture"]
    yield Edit(WORDS["of"]["reference"], {"of": "reference"}, convention=True)
    yield Edit(mixture, {"term": "mixture"}, convention=True)
    for choice, named in WORDS.items():
        for name, words in named.items():
            if name not in {"reference", "mixture", chosen[choice]}:
                yield Edit(words, {choice: name})
    yield Edit("the KL with the wrong sign", {"times": -1.0})
    yield Edit("the KL in bits, logarithms to base 2", {"times": 1.0 / np.log(2.0)})
    yield Edit("half of the KL", {"times": 0.5})
    for temperature in (0.5, 2.0):
        words = f"log-probs at temperature {temperature:g}"
        yield Edit(words, {"logits": temperature})
        yield Edit(f"{words}, times its square", {"logits": temperature, "times": "temperature²"})


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches in the example's dtype and number of dimensions, of near and far distributions."""
    given = np.asarray(example["policy_logprobs"])
    for index, shape in enumerate(SHAPES):
        logits = rng.normal(0.0, 2.0, shape)
        others = logits + rng.normal(0.0, (0.5, 1.0, 2.0)[index % 3], shape)
        rows = shape if given.ndim == 3 else (-1, shape[-1]) if given.ndim == 2 else shape[-1:]
        both = [_logprobs(x).reshape(-1, shape[-1]) for x in (logits, others)]
        both = [(x[0] if given.ndim == 1 else x.reshape(rows)).astype(given.dtype) for x in both]
        yield {**example, "policy_logprobs": both[0], "reference_logprobs": both[1]}


def _logprobs(logits: Array) -> Array:
    return np.asarray(normalised(logits))


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of positions by name."""
    policy = np.asarray(inputs["policy_logprobs"])
    indices = np.arange(policy[..., 0].size).reshape(policy.shape[:-1])
    yield "after the first position", indices > 0
    yield "at the first position", indices == 0
    yield "where the policy's likeliest id has more than half", policy.max(axis=-1) > np.log(0.5)
    yield "where the policy's likeliest id has less than half", policy.max(axis=-1) < np.log(0.5)


def presets(chosen: Choices) -> Iterator[Edit]:  # noqa: ARG001  the op has no settings
    """Yield the divergence and its reverse by name."""
    yield Edit("KL(policy ‖ reference) = Σ p (log p − log q)", {"of": "policy", "term": "given"}, convention=True)
    yield Edit("KL(reference ‖ policy) = Σ q (log q − log p)", {"of": "reference", "term": "given"}, convention=True)


PROGRAM = Program(
    op="full_kl",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("kl",),
    places=places,
    presets=presets,
)
