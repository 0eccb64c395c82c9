"""Designed calls of a sampler's filters, on which one mistake does not look like another; and valid calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.logprobs.inputs import logits as cut_logits
from gates.families.program import Inputs
from gates.families.valid import DTYPES, Generator
from gates.model import Array

SHAPES = ((4, 90), (3, 130), (5, 96), (4, 150), (6, 100), (3, 110), (5, 140), (4, 125))  # rows and tokens
HEADS = ((3.75, 7.5), (4.5, 9.5))  # logits of two likely tokens above a flat tail, which a share of the largest cuts
COPIES = 3  # of each designed row of a draw, each with a uniform of its own
FLATNESS = (0.1, 0.25, 0.6, 1.0, 1.6)  # of rows in turn: in flat ones the sums decide, in peaked ones the shares


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight calls with the filters of an example: rows without ties, flat and peaked, with coins on both sides.

    The first row has two likely tokens and a flat tail. Logits of likely tokens have both signs. The last token, which −1 is
    taken for by mistake, is a likely one in every second row.
    """
    for rows, size in SHAPES:
        yield batch(example, rng, rows, size)


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call in which every filter acts, then calls with fewer, for samplers that do not have them all; last the call."""
    plain = {"xtc_probability": 0.0, "xtc_coin": None, "repetition_penalty": 1.0, "history": None, "min_p": 0.0}
    xtc = {"xtc_probability": 0.5, "xtc_threshold": 0.0625, "xtc_coin": np.zeros(1)}
    penalty = {"repetition_penalty": 1.25, "history": np.zeros((1, 1), np.int64)}
    few = {**inputs, **plain, "temperature": 1.5, "top_k": 20}
    most, every = {**few, "top_p": 0.875}, {**few, "top_p": 0.875, "min_p": 0.03125}
    for filters, more in (
        *((every, more) for more in ({**xtc, **penalty}, xtc, penalty, {})),
        *((filters, more) for filters in (most, few, {**few, "top_k": 0}) for more in (penalty, {})),
    ):
        yield {**filters, **more}
    yield inputs


def distinct(rng: np.random.Generator, rows: int, size: int, gap: float) -> Array:
    """Return logits without ties: permuted steps of at least a gap, the likeliest ones as far apart as in text."""
    steps = np.sort(rng.normal(0.0, 3.0, (rows, size)), axis=1) + np.arange(size) * gap
    return rng.permuted(steps - steps.mean(axis=1, keepdims=True), axis=1)


def batch(example: Inputs, rng: np.random.Generator, rows: int, size: int) -> dict[str, Any]:
    """Return one call."""
    logits = distinct(rng, rows, size, 1e-3)
    logits *= rng.permutation(np.resize(FLATNESS, rows))[:, None]
    logits[1::2] -= np.sort(logits, axis=1)[1::2, -8:-7]  # so that a penalty meets likely tokens of both signs
    tail = np.linspace(-0.6, 0.6, size - 2) + rng.uniform(0.0, 2e-3, size - 2)
    logits[0] = rng.permutation(np.append(tail, HEADS[rows % 2]))
    for row in logits[::2]:
        place = np.argsort(-row)[1]
        row[[place, -1]] = row[[-1, place]]
    given = {**example, "logits": logits.astype(np.asarray(example["logits"]).dtype)}
    likely = np.argsort(-logits, axis=1)
    if example.get("xtc_coin") is not None:
        given["xtc_coin"] = np.where(np.arange(rows) % 2 == 0, 0.3, 0.8) * example["xtc_probability"] / 0.5
    if example.get("history") is not None:
        given["history"] = _ids(rng, likely[:, [0, 2, 2, 3, 5, 9, 11]], size)
    if example.get("generated") is not None:
        given["generated"] = _ids(rng, likely[:, [0, 1, 1, 3, 3, 3, 4]], size)
    if example.get("xtc_special_tokens") is not None:
        given["xtc_special_tokens"] = likely[1:3, 0].astype(np.int64)
    if example.get("logit_bias") is not None:
        given["logit_bias"] = rng.normal(0.0, 2.0, size)
        given["logit_bias"][likely[0, 1]] = -np.inf
    return given


def _ids(rng: np.random.Generator, likely: Array, size: int) -> Array:
    """Return ids of earlier tokens: likely and unlikely ones, some more than once, and empty places."""
    others = rng.integers(0, size - 1, (len(likely), 8))
    places = np.full((len(likely), 2), -1)
    return rng.permuted(np.concatenate([likely, others, others[:, :2], places], axis=1), axis=1).astype(np.int64)


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of tokens by name."""
    del output
    logits = np.asarray(inputs["logits"], np.float64)
    ones, columns = np.ones(logits.shape, bool), np.arange(logits.shape[1])
    yield "at the likeliest token of a row", logits == logits.max(axis=1, keepdims=True)
    yield "at the last token of the vocabulary", ones & (columns == logits.shape[1] - 1)
    for name, words in (("history", "in the history"), ("generated", "in `generated`")):
        if inputs.get(name) is not None:
            ids = np.asarray(inputs[name])
            found = np.array([np.isin(columns, row[row >= 0]) for row in ids])
            yield f"at tokens {words}", found
            yield f"at tokens not {words}", ~found
    if inputs.get("xtc_coin") is not None:
        acts = np.asarray(inputs["xtc_coin"]) < inputs["xtc_probability"]
        yield "in rows on which XTC acts", ones & acts[:, None]
        yield "in rows on which XTC does not act", ones & ~acts[:, None]
    yield "at tokens with a logit above 0", logits > 0.0
    yield "at tokens with a logit below 0", logits < 0.0


def designed_draws(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight calls with the filters of an example: each row some times, with uniforms from 0 on; token 0 is forbidden."""
    for rows, size in SHAPES:
        given = batch(example, rng, rows * COPIES, size)
        logits = given["logits"].copy()
        logits[:, 0] = -np.inf
        uniforms = rng.permuted((np.arange(len(logits)) + rng.random(len(logits))) / len(logits))
        uniforms[2] = 0.0
        yield {**given, "logits": logits, "uniforms": uniforms}


def places_of_draws(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  both are of rows
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


# --- valid calls: in the usual one every filter acts

FILTERS: dict[str, tuple[Any, ...]] = {
    "rows": (3, 1),
    "size": (8, 1, 2, 16),
    "kind": ("distinct", "tied", "equal", "halves", "cut"),
    "dtype": DTYPES,
    "order": ("hf", "mlx-lm"),
    "temperature": (0.5, 0.0, 1.0, 2.0),
    "top_k": (3, 0, 1, 8, 100),
    "top_p": (0.9, 0.0, 0.5, 1.0),
    "min_p": (0.25, 0.0, 1.0),
    "xtc_probability": (0.5, 0.0, 1.0),
    "xtc_threshold": (0.125, 0.0, 0.3, 1.0),
    "special": ((0, -1), None, ()),
    "repetition_penalty": (1.25, 1.0, 0.5),
    "ties": ("all", None, "lower-id"),
    "min_tokens_to_keep": (3, None, 50),
    "presence_penalty": (1.5, 0.0, -1.0),
    "frequency_penalty": (0.5, 0.0),
    "bias": ("numbers", None, "cut"),
}


def valid(
    rng: np.random.Generator, special: tuple[int, ...] | None, bias: str | None, **choices: Any
) -> dict[str, Any]:
    """Return a call of `filtered_logprobs`; what is rarely given is left out where its choice is None or 0."""
    rows, size = shape = choices.pop("rows"), choices.pop("size")
    logits = valid_logits(rng, shape, choices.pop("kind")).astype(choices.pop("dtype"))
    made: dict[str, Any] = {name: choice for name, choice in choices.items() if choice is not None}
    made |= {"logits": logits, "xtc_coin": None, "history": None}
    if made["xtc_probability"]:
        # Never the probability itself: mlx-lm acts there and the definition does not, once in 2²⁴ draws.
        made["xtc_coin"] = rng.choice([0.0, 0.25, 0.75], rows)
    if made["repetition_penalty"] != 1.0:
        made["history"] = rng.integers(-1, size, (rows, 3))
    if made["presence_penalty"] or made["frequency_penalty"]:
        made["generated"] = rng.integers(-1, size, (rows, 4))
    else:
        del made["presence_penalty"], made["frequency_penalty"]
    if special is not None:
        made["xtc_special_tokens"] = np.array(special, np.int64) % size
    if bias is not None:
        made["logit_bias"] = rng.normal(0.0, 1.0, size)
        made["logit_bias"][1:2] = -np.inf if bias == "cut" and size > 2 else made["logit_bias"][1:2]
    return made


def valid_logits(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> Array:
    """Return logits with ties, without, or some at −inf."""
    untied = distinct(rng, *shape, 0.01)
    if kind == "cut":
        return cut_logits(rng, shape, kind)
    halves = np.where(np.arange(shape[1]) % 2 == 0, 1.0, -60.0) * np.ones(shape)
    # of equal ones the probabilities are powers of two: a mass lies exactly at a threshold
    return {"tied": np.round(untied / 2), "equal": np.zeros(shape), "halves": halves}.get(kind, untied)


def valid_draws(rng: np.random.Generator, uniform: str, **choices: Any) -> dict[str, Any]:
    """Return a call of `sample_tokens`."""
    rows = choices["rows"]
    special = {"zero": np.zeros(rows), "eighths": rng.integers(0, 8, rows) / 8.0, "last": np.full(rows, 1.0 - 2.0**-53)}
    return {**valid(rng, **choices), "uniforms": special.get(uniform, rng.random(rows))}


GENERATORS = (
    Generator("filtered_logprobs", FILTERS, valid),
    Generator("sample_tokens", {**FILTERS, "uniform": ("any", "zero", "eighths", "last")}, valid_draws),
)
