"""The forward definition of a token drawn by a uniform, with its log-prob, and what people write instead.

The filtered row is that of `sampling`, whose edits it shares. Source: docs/definitions.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, plain
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import sampling, sampling_edits, sampling_inputs
from gates.model import Array
from reference.textbook.number import Number

COPIES = 3  # of each designed row, each with a uniform of its own
ORDERS = {
    "likeliest first": "the running sum from the likeliest token on, not in the order of the ids",
    "least likely first": "the running sum from the least likely token on, not in the order of the ids",
    "last id first": "the running sum from the last id on",
}
UNIFORMS = {
    "complement": "1 − u in the place of u",
    "first": "the uniform of the first row for every row",
    "next": "the uniform of the next row",
}
TOKENS = {
    "greedy": "the likeliest token, whatever the uniform",
    "before": "the token before the drawn one",
    "after": "the token after the drawn one",
}


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `sample_tokens` ask for."""
    return {**sampling.asked(inputs), "sum order": "by id", "uniform": "given", "drawn": "given", "reached": "above"}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the tokens and their log-probs; a token is void where a rounding decides it."""
    filtered = sampling.compute(data, {**chosen, "result": "log-probs"}, variable)["logprobs"]
    scored = filtered
    if chosen["result"] != "log-probs":
        scored = sampling.compute(data, chosen, variable)["logprobs"]
    rows = np.arange(len(plain(filtered)))
    tokens, edge = _drawn(filtered, _uniform(np.asarray(data["uniforms"], np.float64), chosen["uniform"]), chosen)
    found = scored[(rows, tokens)]
    if not isinstance(found, Number):
        return {"tokens": tokens, "logprobs": found}
    void = edge | (found.void & np.isfinite(found.value))  # what was removed is data
    found.void = void
    return {"tokens": Number(tokens.astype(np.float64), found.dtype, np.zeros(len(rows)), void), "logprobs": found}


def _uniform(uniforms: Array, how: str) -> Array:
    if how == "complement":
        return 1.0 - uniforms
    return (
        np.full_like(uniforms, uniforms[0]) if how == "first" else np.roll(uniforms, -1) if how == "next" else uniforms
    )


def _drawn(filtered: Value, uniforms: Array, chosen: Choices) -> tuple[Array, Array]:
    """Return the tokens, and where a running sum lies within its rounding of the uniform."""
    logprobs = plain(filtered)
    rows, size = logprobs.shape
    order = _order(logprobs, chosen["sum order"])
    p = np.exp(np.take_along_axis(logprobs, order, axis=1))
    sums = np.cumsum(p, axis=1)
    goal = (uniforms * sums[:, -1])[:, None]
    place = (sums < goal if chosen["reached"] == "at" else sums <= goal).sum(axis=1)
    place = np.minimum(place, size - 1)
    if chosen["drawn"] == "greedy":
        place = np.argmax(p, axis=1)
    tokens = np.take_along_axis(order, place[:, None], axis=1)[:, 0]
    tokens = np.clip(tokens + {"before": -1, "after": 1}.get(chosen["drawn"], 0), 0, size - 1)
    edge = np.zeros(rows, bool)
    if isinstance(filtered, Number) and chosen["drawn"] != "greedy":
        undecided = filtered.void.any(axis=1)
        unit = np.finfo(filtered.dtype).eps
        limit = np.where(np.isfinite(logprobs), np.minimum(filtered.limit(), 1.0), 0.0)
        room = np.cumsum(p * np.take_along_axis(limit, order, axis=1), axis=1) + unit * size * sums
        edge = undecided | ((np.abs(sums - goal) <= room) & (p > 0.0) & (goal > 0.0)).any(axis=1)
    return tokens, edge


def _order(logprobs: Array, how: str) -> Array:
    if how in {"by id", "last id first"}:
        ids = np.arange(logprobs.shape[1])
        return np.broadcast_to(ids if how == "by id" else ids[::-1], logprobs.shape)
    found = np.argsort(-logprobs, axis=1, kind="stable")
    return found if how == "likeliest first" else found[:, ::-1]


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a draw with these choices, conventions first."""
    yield from (Edit(words, {"sum order": name}) for name, words in ORDERS.items())
    yield from (Edit(words, {"uniform": name}) for name, words in UNIFORMS.items())
    yield from (Edit(words, {"drawn": name}) for name, words in TOKENS.items())
    yield Edit("the least token whose sum reaches u, also at u = 0: one that cannot be drawn", {"reached": "at"})
    filters = [stage for stage in asked["order"] if stage != "temperature"]
    alike = [{"result": "not renormalised"}, *([{"result": "before the last"}] if len(filters) < 2 else [])]
    yield from (edit for edit in sampling_edits.edits(asked) if edit.changes not in alike)  # as "unfiltered" here


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight calls with the filters of an example: each row some times, with uniforms from 0 on; token 0 is forbidden."""
    for rows, size in sampling_inputs.SHAPES:
        given = sampling_inputs.batch(example, rng, rows * COPIES, size)
        logits = given["logits"].copy()
        logits[:, 0] = -np.inf
        uniforms = rng.permuted((np.arange(len(logits)) + rng.random(len(logits))) / len(logits))
        uniforms[2] = 0.0
        yield {**given, "logits": logits, "uniforms": uniforms}


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield calls with filters, as for the filters alone."""
    yield from sampling_inputs.examples(inputs)


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  both are of rows
    """Yield sets of draws by name."""
    uniforms = np.asarray(inputs["uniforms"])
    yield "at u = 0", uniforms == 0.0
    yield "where u is below 1/2", uniforms < 0.5
    yield "where u is above 1/2", uniforms > 0.5
    yield "after the first row", np.arange(len(uniforms)) > 0
    if inputs.get("xtc_coin") is not None:
        acts = np.asarray(inputs["xtc_coin"]) < inputs["xtc_probability"]
        yield "in rows on which XTC acts", acts
        yield "in rows on which XTC does not act", ~acts


PROGRAM = Program(
    op="sample_tokens",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("tokens", "logprobs"),
    places=places,
    presets=sampling_edits.presets,
    examples=examples,
)
PROGRAMS = (PROGRAM,)
