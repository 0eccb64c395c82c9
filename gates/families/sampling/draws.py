"""The forward formula of a token drawn by a uniform, with its log-prob.

The filtered row is that of `program`, whose edits it shares. Source: docs/definitions.md, "Sampling".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.arithmetic.functions import Value, plain
from gates.arithmetic.number import Number
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.sampling import edits, program
from gates.families.sampling import inputs as generators
from gates.model import Array


def asked(inputs: Inputs) -> Choices:
    """Return the choices that a call of `sample_tokens` asks for."""
    return {**program.asked(inputs), "sum order": "by id", "uniform": "given", "drawn": "given", "reached": "above"}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the tokens and their log-probs; a token is void where rounding decides it."""
    filtered = program.compute(data, {**chosen, "result": "log-probs"}, variable)["logprobs"]
    scored = filtered
    if chosen["result"] != "log-probs":
        scored = program.compute(data, chosen, variable)["logprobs"]
    rows = np.arange(len(plain(filtered)))
    tokens, edge = _drawn(filtered, _uniform(np.asarray(data["uniforms"], np.float64), chosen["uniform"]), chosen)
    logprobs = scored[(rows, tokens)]
    if not isinstance(logprobs, Number):
        return {"tokens": tokens, "logprobs": logprobs}
    void = edge | (logprobs.void & np.isfinite(logprobs.value))  # −inf of a removed token is not void
    logprobs.void = void
    return {
        "tokens": Number(tokens.astype(np.float64), logprobs.dtype, np.zeros(len(rows)), void),
        "logprobs": logprobs,
    }


def _uniform(uniforms: Array, how: str) -> Array:
    if how == "complement":
        return 1.0 - uniforms
    return (
        np.full_like(uniforms, uniforms[0]) if how == "first" else np.roll(uniforms, -1) if how == "next" else uniforms
    )


def _drawn(filtered: Value, uniforms: Array, chosen: Choices) -> tuple[Array, Array]:
    """Return the tokens, and where a running sum is within its rounding error of the uniform."""
    logprobs = plain(filtered)
    rows, size = logprobs.shape
    order = _order(logprobs, chosen["sum order"])
    p = np.exp(np.take_along_axis(logprobs, order, axis=1))
    sums = np.cumsum(p, axis=1)
    goal = (uniforms * sums[:, -1])[:, None]
    rank = (sums < goal if chosen["reached"] == "at" else sums <= goal).sum(axis=1)
    rank = np.minimum(rank, size - 1)
    if chosen["drawn"] == "greedy":
        rank = np.argmax(p, axis=1)
    tokens = np.take_along_axis(order, rank[:, None], axis=1)[:, 0]
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
    falling = np.argsort(-logprobs, axis=1, kind="stable")
    return falling if how == "likeliest first" else falling[:, ::-1]


PROGRAM = Program(
    op="sample_tokens",
    asked=asked,
    compute=compute,
    edits=edits.of_draws,
    inputs=generators.designed_draws,
    outputs=("tokens", "logprobs"),
    places=generators.places_of_draws,
    presets=edits.presets,
    examples=generators.examples,
)
PROGRAMS = (PROGRAM,)
