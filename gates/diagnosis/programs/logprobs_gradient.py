"""The gradient of log-probs of ids and of their entropy by the logits, and what people write instead.

It is that of the forward definition in `logprobs`, whose edits it shares. Source: docs/definitions.md, "Log-probabilities".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import logprobs, logprobs_edits, logprobs_inputs
from gates.model import Array
from reference.textbook.number import gradient

OF_LOGPROBS = {
    "given": "",
    "ones": "the gradient of each log-prob taken for 1, whatever it is",
    "negated": "the gradient with the wrong sign",
    "left out": "the log-probs' part left out",
}


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `selective_log_softmax_backward` ask for."""
    with_entropy = inputs.get("grad_entropy") is not None
    return {
        **logprobs.asked(inputs),
        "with_entropy": with_entropy,
        "upstream": "given",
        "chain": True,
        "of_entropy": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  it has its own
    """Return ∂L/∂logits of L = Σ g·lp + Σ g_H·H; nothing without bounds, for the gradient rests on them."""
    if not data.bounded:
        return {}
    logits = np.asarray(data["logits"])
    dtype = "float64" if logits.dtype == np.float64 else "float32"
    leaf = data.lift(logits, dtype)
    found = logprobs.compute(data, chosen, leaf)
    given = np.asarray(data["grad_logprobs"])
    upstream = {"ones": np.ones_like(given), "negated": -given, "left out": 0 * given}.get(chosen["upstream"], given)
    loss = (found["logprobs"] * data.lift(upstream, dtype)).sum()
    if chosen["with_entropy"]:
        sign = -1.0 if chosen["upstream"] == "negated" else chosen["of_entropy"]
        loss = loss + (found["entropy"] * data.lift(sign * np.asarray(data["grad_entropy"]), dtype)).sum()
    (slope,) = gradient(loss, leaf)
    return {"gradient": slope if chosen["chain"] else slope * data.scalar(chosen["tau"], dtype)}


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a gradient with these choices: its own, then those of the values."""
    if asked["tau"] != 1.0:
        yield Edit("the gradient by x/τ, not divided by τ", {"chain": False})
    yield from (Edit(words, {"upstream": name}) for name, words in OF_LOGPROBS.items() if words)
    yield Edit("the gradient on the ids alone, without that of the normaliser", {"normaliser": "constant"})
    yield Edit("the gradient of the normaliser alone, without that on the ids", {"value": "constant"})
    if asked["with_entropy"]:
        yield Edit("the entropy's part left out", {"of_entropy": 0.0})
        yield Edit("−p log p for the entropy's gradient, without H", {"entropy": "weighed"})
    alike = ({"value": "logit"}, {"value": "shifted"})  # their gradient is that on the ids alone
    yield from (edit for edit in logprobs_edits.edits(asked) if edit.changes not in alike)


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call, and a gradient of both signs for each output."""
    for inputs in logprobs_inputs.designed(example, rng):
        logits, ids = np.asarray(inputs["logits"]), np.asarray(inputs["ids"])
        wide = np.float64 if logits.dtype == np.float64 else np.float32
        given = {**inputs, "grad_logprobs": np.asarray(rng.normal(0.0, 1.0, ids.shape)).astype(wide)}
        if example.get("grad_entropy") is not None:
            given["grad_entropy"] = np.asarray(rng.normal(0.0, 1.0, logits.shape[:-1])).astype(wide)
        yield given


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call at a temperature, with the gradient of the entropy and without it, then the call as it is."""
    warm = inputs if inputs["temperature"] != 1.0 else {**inputs, "temperature": logprobs_inputs.TAU}
    if inputs.get("grad_entropy") is None:
        logits = np.asarray(inputs["logits"])
        yield {**warm, "grad_entropy": np.ones(logits.shape[:-1], np.asarray(inputs["grad_logprobs"]).dtype)}
    if warm is not inputs:
        yield warm
    yield inputs


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of logits by name."""
    logits, ids = np.asarray(inputs["logits"], np.float64), np.asarray(inputs["ids"])
    each = ids.reshape(*logits.shape[:-1], -1)
    of_ids = (each[..., None] == np.arange(logits.shape[-1])).any(axis=-2)
    likeliest = logits == logits.max(axis=-1, keepdims=True)
    ones = np.ones(logits.shape, bool)
    yield "at the given ids", of_ids
    yield "at ids that are not given", ~of_ids
    yield "at the likeliest id of a position", likeliest
    yield "at the last id of the vocabulary", ones & (np.arange(logits.shape[-1]) == logits.shape[-1] - 1)
    if inputs.get("ignore_index") is not None:
        ignored = np.all(each == inputs["ignore_index"], axis=-1)
        yield "where every id is ignored", ones & ignored[..., None]


PROGRAM = Program(
    op="selective_log_softmax_backward",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("gradient",),
    places=places,
    presets=logprobs_edits.presets,
    examples=examples,
    pairs=False,
)
PROGRAMS = (PROGRAM,)
