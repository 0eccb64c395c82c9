"""Designed calls of the log-probs of ids: vocabularies of several sizes, no id likelier than chance by its place; valid calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.program import Inputs
from gates.families.valid import DTYPES, Generator
from gates.model import Array

SHAPES = ((2, 3, 11), (3, 4, 7), (4, 2, 17), (2, 5, 9), (3, 3, 23), (5, 2, 6), (2, 4, 31), (4, 3, 13))
"""Rows, tokens and vocabulary."""
FAR = 100  # ids: more than an ignored id such as −100 counts back from the end, so that it can be read
UNLIKELY = 22.0  # nats by which the first id is less likely, so that a constant added to its probability shows
TAU = 1.5  # what is asked where a case's temperature is 1, so that a temperature shows


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call, its dtype and its number of dimensions."""
    given, ignored = np.asarray(example["logits"]), example.get("ignore_index")
    several = np.ndim(example["ids"]) == given.ndim
    for rows, tokens, size in SHAPES:
        size_ = size + FAR if ignored is not None else size
        shape = {1: (), 2: (rows * tokens,)}.get(given.ndim, (rows, tokens))
        logits = rng.normal(0.0, 2.0, (*shape, size_))
        ids = rng.integers(0, size_, (*shape, 3) if several else shape)
        unlikely = np.unravel_index(0, shape) if shape else ()
        logits[(*unlikely, np.ravel(ids[unlikely])[0])] -= UNLIKELY * max(float(example["temperature"]), 1.0)
        if ignored is not None:
            ids = np.where(rng.random(ids.shape) < 0.3, ignored, ids)
            if ids.ndim:
                ids[-1] = ignored
        yield {**example, "logits": logits.astype(given.dtype), "ids": np.asarray(ids, np.int64)}


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call at a temperature and with the entropy, one without it, then the call as it is."""
    if inputs["temperature"] == 1.0:
        yield {**inputs, "temperature": TAU, "entropy": True}
        yield {**inputs, "temperature": TAU}
    elif not inputs.get("entropy"):
        yield {**inputs, "entropy": True}
    yield inputs


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of ids, or of positions for the entropy, by name."""
    logits, ids = np.asarray(inputs["logits"], np.float64), np.asarray(inputs["ids"])
    each = ids.reshape(*logits.shape[:-1], -1)
    ignored = inputs.get("ignore_index")
    counts = np.ones(each.shape, bool) if ignored is None else each != ignored
    likely = logits.argmax(axis=-1)[..., None] == each
    size = logits.shape[-1]
    column = np.arange(each.shape[-2])[:, None] * np.ones(each.shape) if each.ndim > 1 else np.zeros(each.shape)
    named = {
        "where an id is ignored": ~counts,
        "where an id is not ignored": counts & np.any(~counts),
        "at the likeliest id of a position": counts & likely,
        "at the ids that are not the likeliest": counts & ~likely,
        "at the last id of the vocabulary": each == size - 1,
        "at the first id of the vocabulary": each == 0,
        "at the first token of a row": column == 0,
        "after the first token of a row": column > 0,
        "after the first id of a position": counts & (np.arange(each.shape[-1]) > 0),
    }
    for name, place in named.items():
        yield name, place.any(axis=-1) if output == "entropy" else place.reshape(ids.shape)


def designed_gradient(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call, and a gradient of both signs for each output."""
    for inputs in designed(example, rng):
        logits, ids = np.asarray(inputs["logits"]), np.asarray(inputs["ids"])
        wide = np.float64 if logits.dtype == np.float64 else np.float32
        given = {**inputs, "grad_logprobs": np.asarray(rng.normal(0.0, 1.0, ids.shape)).astype(wide)}
        if example.get("grad_entropy") is not None:
            given["grad_entropy"] = np.asarray(rng.normal(0.0, 1.0, logits.shape[:-1])).astype(wide)
        yield given


def examples_of_gradient(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call at a temperature, with the gradient of the entropy and without it, then the call as it is."""
    warm = inputs if inputs["temperature"] != 1.0 else {**inputs, "temperature": TAU}
    if inputs.get("grad_entropy") is None:
        logits = np.asarray(inputs["logits"])
        yield {**warm, "grad_entropy": np.ones(logits.shape[:-1], np.asarray(inputs["grad_logprobs"]).dtype)}
    if warm is not inputs:
        yield warm
    yield inputs


def places_of_gradient(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
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


# --- valid calls

LEADING = ((4,), (), (1,), (2, 3))
KINDS = ("typical", "equal", "offset", "peaked", "cut", "one token")  # of logits
SCORING: dict[str, tuple[Any, ...]] = {
    "leading": LEADING,
    "size": (9, 1, 2, 4),
    "kind": KINDS,
    "several": (0, 1, 3),
    "ignored": ("never", "some", "none here", "a position"),
    "temperature": (1.0, 0.5, 2.0),
    "dtype": (*DTYPES, "float16"),
    "entropy": (True, False),
}


def logits(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    """Return logits, a maximum of each row finite."""
    drawn = np.asarray(rng.normal(0.0, 2.0, shape))
    if kind == "equal":
        return np.full(shape, 0.5)
    if kind == "offset":
        return drawn + 500.0
    if kind == "peaked":
        drawn[..., -1] += 60.0
    if kind in {"cut", "one token"}:
        gone = rng.random(shape) < (0.4 if kind == "cut" else 1.0)
        gone[..., int(rng.integers(shape[-1]))] = False
        drawn[gone] = -np.inf
    return drawn


def valid(
    rng: np.random.Generator, leading: tuple[int, ...], size: int, kind: str, several: int, ignored: str, **choices: Any
) -> dict[str, Any]:
    """Return a call of `selective_log_softmax`."""
    shape = (*leading, several) if several else leading
    ids = np.asarray(rng.integers(0, size, shape), np.int64)
    if ignored == "some":
        ids = np.where(rng.random(shape) < 0.4, -100, ids)
    if ignored == "a position" and ids.ndim:
        ids[0] = -100
    ignoring = {} if ignored == "never" else {"ignore_index": -100}
    return {
        "logits": logits(rng, (*leading, size), kind).astype(choices.pop("dtype")),
        "ids": ids,
        **ignoring,
        **choices,
    }


def valid_gradient(rng: np.random.Generator, *, entropy: bool, **choices: Any) -> dict[str, Any]:
    """Return a call of `selective_log_softmax_backward`."""
    made, wide = valid(rng, **choices), "float64" if choices["dtype"] == "float64" else "float32"
    upstream = np.where(rng.random(made["ids"].shape) < 0.2, 0.0, rng.normal(0.0, 1.0, made["ids"].shape))
    of_entropy = np.asarray(rng.normal(0.0, 1.0, made["logits"].shape[:-1]), wide)
    return {**made, "grad_logprobs": np.asarray(upstream, wide), "grad_entropy": of_entropy if entropy else None}


GENERATORS = (
    Generator("selective_log_softmax", SCORING, valid),
    Generator("selective_log_softmax_backward", SCORING, valid_gradient),
)
