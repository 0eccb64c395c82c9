"""Inputs of the ops of a vocabulary: log-probs, entropies, divergences, filters and draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from valid_inputs import Generator, Rng
from valid_inputs.rows import DTYPES, Array

LEADING = {"none": (), "one": (1,), "square": (4,), "two axes": (2, 3)}
VALUES = ("typical", "equal", "offset", "peaked", "cut", "one token")
SCORING = {
    "leading": tuple(LEADING),
    "size": ("1", "2", "4", "9"),
    "kind": VALUES,
    "many": ("none", "one", "three"),
    "ignored": ("never", "some", "none here", "a position"),
    "temperature": ("0.5", "1.0", "2.0"),
    "dtype": ("float16", *DTYPES),
    "entropy": ("yes", "no"),
}
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0, "xtc_threshold": 0.125, "xtc_coin": None}


def logits(rng: Rng, shape: tuple[int, ...], kind: str) -> Array:
    """Return logits, a maximum of each row finite."""
    drawn = rng.normal(0.0, 2.0, shape)
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
    return np.asarray(drawn)


def scoring(rng: Rng, leading: str, size: str, kind: str, many: str, ignored: str, **levels: str) -> dict[str, Any]:
    """Return a call of `selective_log_softmax`."""
    shape, vocabulary = LEADING[leading], int(size)
    of_ids = shape if many == "none" else (*shape, {"one": 1, "three": 3}[many])
    ids = np.asarray(rng.integers(0, vocabulary, of_ids), np.int64)
    if ignored == "some":
        ids = np.where(rng.random(of_ids) < 0.4, -100, ids)
    if ignored == "a position" and ids.ndim:
        ids[0] = -100
    given: dict[str, Any] = {
        "logits": logits(rng, (*shape, vocabulary), kind).astype(levels["dtype"]),
        "ids": ids,
        "temperature": float(levels["temperature"]),
        "entropy": levels["entropy"] == "yes",
    }
    return given if ignored == "never" else {**given, "ignore_index": -100}


def backward(rng: Rng, **levels: str) -> dict[str, Any]:
    """Return a call of `selective_log_softmax_backward`; where a token cannot be drawn no gradient is asked of it."""
    given = scoring(rng, **levels)
    wide = np.dtype("float64" if levels["dtype"] == "float64" else "float32")
    upstream = rng.normal(0.0, 1.0, given["ids"].shape)
    of_entropy = np.asarray(rng.normal(0.0, 1.0, given["logits"].shape[:-1]))
    entropy = given.pop("entropy")
    return {
        **given,
        "grad_logprobs": np.asarray(np.where(rng.random(upstream.shape) < 0.2, 0.0, upstream), wide),
        "grad_entropy": of_entropy.astype(wide) if entropy else None,
    }


def divergence(rng: Rng, leading: str, size: str, kind: str, other: str, dtype: str) -> dict[str, Any]:
    """Return a call of `full_kl`."""
    shape = (*LEADING[leading], int(size))

    def normalised(x: Array) -> Array:
        shifted = x - x.max(axis=-1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))

    policy = normalised(logits(rng, shape, kind))
    reference = policy if other == "same" else normalised(logits(rng, shape, other))
    return {"policy_logprobs": policy.astype(dtype), "reference_logprobs": reference.astype(dtype)}


FILTERS = {
    "order": ("hf", "mlx-lm"),
    "size": ("1", "2", "8", "16"),
    "rows": ("1", "3"),
    "kind": ("distinct", "tied", "equal", "halves", "cut"),
    "temperature": ("0.0", "0.5", "1.0", "2.0"),
    "top k": ("0", "1", "3", "8", "100"),
    "top p": ("0.0", "0.5", "0.9", "1.0"),
    "min p": ("0.0", "0.25", "1.0"),
    "xtc": ("0.0", "0.5", "1.0"),
    "threshold": ("0.0", "0.125", "0.3", "1.0"),
    "special": ("not given", "none", "likely"),
    "penalty": ("1.0", "1.25", "0.5"),
    "ties": ("not given", "all", "lower-id"),
    "least": ("not given", "3", "50"),
    "presence": ("0.0", "1.5", "-1.0"),
    "frequency": ("0.0", "0.5"),
    "bias": ("not given", "numbers", "cut"),
    "dtype": DTYPES,
}


def filters(rng: Rng, order: str, size: str, kind: str, dtype: str, **chosen: str) -> dict[str, Any]:
    """Return a call of `filtered_logprobs`."""
    shape = (int(chosen["rows"]), int(size))
    values = rng.permuted(np.sort(rng.normal(0.0, 2.0, shape)) + np.arange(shape[1]) * 0.01, axis=1)
    if kind == "tied":
        values = np.round(values / 2)
    if kind == "equal":  # probabilities are powers of two: a mass lies exactly at a threshold
        values = np.zeros(shape)
    if kind == "halves":
        values = np.where(np.arange(shape[1]) % 2 == 0, 1.0, -60.0) * np.ones(shape)
    if kind == "cut":
        values = logits(rng, shape, "cut")
    given: dict[str, Any] = {
        **OFF,
        "logits": values.astype(dtype),
        "order": order,
        "temperature": float(chosen["temperature"]),
        "top_k": int(chosen["top_k"]),
        "top_p": float(chosen["top_p"]),
        "min_p": float(chosen["min_p"]),
        "xtc_probability": float(chosen["xtc"]),
        "xtc_threshold": float(chosen["threshold"]),
        "repetition_penalty": float(chosen["penalty"]),
        "history": None,
    }
    if given["xtc_probability"]:
        # Never the probability itself: mlx-lm acts there and the definition does not, once in 2²⁴ draws.
        given["xtc_coin"] = rng.choice([0.0, 0.25, 0.75], shape[0])
    if given["repetition_penalty"] != 1.0:
        given["history"] = rng.integers(-1, shape[1], (shape[0], 3))
    return given | _rarer(rng, shape, chosen)


def _rarer(rng: Rng, shape: tuple[int, int], chosen: dict[str, str]) -> dict[str, Any]:
    """Return the inputs that are given in the cases that are about them alone."""
    given: dict[str, Any] = {}
    if chosen["special"] != "not given":
        given["xtc_special_tokens"] = np.array([] if chosen["special"] == "none" else [0, shape[1] - 1], np.int64)
    if chosen["ties"] != "not given":
        given["ties"] = chosen["ties"]
    if chosen["least"] != "not given":
        given["min_tokens_to_keep"] = int(chosen["least"])
    if float(chosen["presence"]) or float(chosen["frequency"]):
        given |= {"presence_penalty": float(chosen["presence"]), "frequency_penalty": float(chosen["frequency"])}
        given["generated"] = rng.integers(-1, shape[1], (shape[0], 4))
    if chosen["bias"] != "not given":
        given["logit_bias"] = rng.normal(0.0, 1.0, shape[1])
        if chosen["bias"] == "cut" and shape[1] > 2:
            given["logit_bias"][1] = -np.inf
    return given


def draws(rng: Rng, uniform: str, **levels: str) -> dict[str, Any]:
    """Return a call of `sample_tokens`."""
    given = filters(rng, **levels)
    count = len(given["logits"])
    chosen = {
        "zero": np.zeros(count),
        "eighths": rng.integers(0, 8, count) / 8.0,
        "last": np.full(count, 1.0 - 2.0**-53),
    }
    return {**given, "uniforms": chosen.get(uniform, rng.random(count))}


GENERATORS = (
    Generator("selective_log_softmax", SCORING, scoring),
    Generator("selective_log_softmax_backward", SCORING, backward),
    Generator(
        "full_kl",
        {
            "leading": tuple(LEADING),
            "size": ("1", "2", "9"),
            "kind": VALUES,
            "other": ("same", "typical", "cut", "peaked"),
            "dtype": DTYPES,
        },
        divergence,
    ),
    Generator("filtered_logprobs", FILTERS, filters),
    Generator("sample_tokens", {**FILTERS, "uniform": ("zero", "eighths", "last", "any")}, draws),
)
