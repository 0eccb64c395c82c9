"""Inputs of the gates of filters and draws: combinations of filters, with logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.families.sampling import inputs as made
from gates.model import Array, Bound, Draw, Evidence, Op

LARGE = 151_936
OFF: dict[str, Any] = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.125,
    "xtc_coin": None,
    "repetition_penalty": 1.0,
    "history": None,
}
XTC: dict[str, Any] = {"xtc_probability": 0.5, "xtc_threshold": 0.03125}
FILTERS: dict[str, dict[str, Any]] = {  # every number is exact in float32
    "none": {},
    "peaked": {},  # running sums reach 1 long before the last token, which top-p of 1 must keep
    "raised": {},  # exp overflows unless the largest logit is subtracted
    "raised-top-p": {"top_p": 0.875},  # as above, inside a filter
    "temperature": {"temperature": 1.75},
    "top-k": {"top_k": 20, "temperature": 1.5},
    "top-k-one": {"top_k": 1},
    "top-k-beyond": {"top_k": 1000},  # more than the vocabulary
    "top-p": {"top_p": 0.875, "temperature": 1.5},
    "top-p-zero": {"top_p": 0.0},
    "found-two-tokens": {"top_p": 0.875},  # in some rows both stay
    "min-p": {"min_p": 0.0625, "temperature": 0.75},
    "min-p-one": {"min_p": 1.0},  # the likeliest token is at the bound and stays
    "top-k-top-p": {"top_k": 20, "top_p": 0.75, "temperature": 1.5},  # the filters that most samplers have
    "top-k-min-p": {"top_k": 20, "min_p": 0.125, "temperature": 1.5},
    "top-p-min-p": {"top_p": 0.96875, "min_p": 0.0625, "temperature": 1.5},
    "xtc": XTC,
    "xtc-flat": XTC,  # rows in which XTC acts, but no token reaches the threshold
    "penalty": {"repetition_penalty": 1.375},
    "all": {"top_k": 30, "top_p": 0.9375, "min_p": 0.015625, **XTC, "repetition_penalty": 1.25, "temperature": 1.25},
    "min-tokens-top-k": {"top_k": 5, "min_tokens_to_keep": 12, "temperature": 1.5},
    "min-tokens-top-p": {"top_p": 0.25, "min_tokens_to_keep": 12, "temperature": 1.5},
    "min-tokens-min-p": {"min_p": 0.75, "min_tokens_to_keep": 12, "temperature": 1.5},
    "xtc-special": {**XTC, "xtc_special_tokens": None},  # drawn below: the likeliest tokens of the rows
    "presence": {"presence_penalty": 1.375, "generated": None},
    "frequency": {"frequency_penalty": 0.625, "generated": None},
    "bias": {"logit_bias": None, "repetition_penalty": 1.375},  # the bias is added before the penalty reads signs
    "penalties": {
        "presence_penalty": 0.75,
        "frequency_penalty": -0.375,
        "generated": None,
        "logit_bias": None,
        "repetition_penalty": 1.25,
        "temperature": 1.25,
        "top_k": 60,
    },
}
ABSENT = {  # defaults of absent inputs
    "min_tokens_to_keep": 1,
    "xtc_special_tokens": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": None,
}
FILTERS["layouts"] = FILTERS["all"]  # in other memory layouts
PAIRS = ("top-k-top-p", "top-k-min-p", "top-p-min-p")
IN_FLOAT64 = {"arithmetic": "float64"}  # float32 filters are right too, unless a subject declares float64
NUDGE = 1e-9  # relative: with a threshold this close to a token's mass, rounding decides and not the filter
EDGE = 1e-11  # relative accuracy of a float64 running sum over 151,936 tokens, in any order
QUANTITIES = {
    "tokens wrongly kept or removed": Bound("exact", "no threshold lies within a rounding of these tokens", 0),
    "log-prob error in 2u·S (float64)": Bound(
        "derived",
        'k·2u·S with S of docs/definitions.md, "The scales": the logits with bias and penalties, log V and the likeliest '
        "token's log-prob; k = 8",
        8.0,
        level="precision",
    ),
}


def distinct(rng: np.random.Generator, rows: int, size: int, dtype: str) -> Array:
    """Return logits without ties: permuted steps of which the least is far above a rounding."""
    if size != LARGE:
        return made.distinct(rng, rows, size, 1e-4).astype(dtype)
    steps = np.cumsum(rng.uniform(0.5, 1.5, (rows, size)), axis=1) * (20.0 / size)  # 20 nats, e-fold in 7,600 tokens
    steps[:, -50:] += np.linspace(0.0, 8.0, 50)  # and a head of likely ones
    return rng.permuted(steps - steps.mean(axis=1, keepdims=True), axis=1).astype(dtype)


def inputs(rng: np.random.Generator, filters: str, order: str, dtype: str, size: int) -> dict[str, Any]:
    """Return rows of logits without ties, with the named filters and the lists that they need."""
    rows = 8 if size < LARGE else 2
    chosen = {**OFF, **FILTERS[filters], "order": order, "logits": distinct(rng, rows, size, dtype)}
    if filters in PAIRS:  # flat rows, decided by the first filter, and peaked rows, decided by the second
        chosen["logits"] *= np.where(np.arange(rows) % 2 == 0, 0.25, 2.0).astype(dtype)[:, None]
    if filters == "peaked":
        chosen["logits"] *= 3
    if filters == "xtc-flat":
        chosen["logits"] *= np.where(np.arange(rows) % 4 == 0, 0.125, 1.0).astype(dtype)[:, None]
    if filters == "found-two-tokens":
        chosen["logits"] = _two_tokens(rng, rows).astype(dtype)
    if filters in {"raised", "raised-top-p"}:
        chosen["logits"] += 128 if dtype == "float32" else 1024
    if chosen["xtc_probability"]:
        chosen["xtc_coin"] = np.where(np.arange(rows) % 2 == 0, 0.25, 0.75) + rng.uniform(-0.2, 0.2, rows)
    if chosen["repetition_penalty"] != 1.0:
        likely = np.argsort(-chosen["logits"], axis=1)[:, :6]
        unlikely = rng.integers(0, size, (rows, 10))
        chosen["history"] = np.concatenate([unlikely, np.full((rows, 3), -1), likely], axis=1).astype(np.int64)
    _give_lists(rng, chosen)
    return chosen


def _give_lists(rng: np.random.Generator, chosen: dict[str, Any]) -> None:
    """Draw the lists that are None in `chosen`."""
    rows, size = chosen["logits"].shape
    if "xtc_special_tokens" in chosen:
        # XTC acts on the first and the third row
        chosen["xtc_special_tokens"] = np.argmax(chosen["logits"], axis=1)[:3]
    if "generated" in chosen:
        likely = np.argsort(-chosen["logits"], axis=1)[:, :6]
        parts = (likely[:, [0, 1, 1, 2, 2, 2, 3]], np.full((rows, 2), -1), rng.integers(0, size, (rows, 9)))
        chosen["generated"] = rng.permuted(np.concatenate(parts, axis=1), axis=1).astype(np.int64)
    if "logit_bias" in chosen:
        chosen["logit_bias"] = rng.normal(0.0, 2.0, size)
        chosen["logit_bias"][rng.integers(0, size, 5)] = -np.inf


def _two_tokens(rng: np.random.Generator, rows: int) -> Array:
    """Return (rows, 2) logits, close together in every other row and far apart in the rest."""
    apart = np.where(np.arange(rows) % 2 == 0, rng.uniform(0.25, 1.5, rows), rng.uniform(3.0, 6.0, rows))
    return rng.permuted(np.stack([np.zeros(rows), apart], axis=1), axis=1)


def least(filters: str) -> dict[str, Any]:
    """Return the conventions besides the order that a case with these filters needs."""
    return {name: FILTERS[filters][name] for name in ("min_tokens_to_keep",) if name in FILTERS[filters]}


def scale(inputs: dict[str, Any], want: Array) -> Array:
    """Return S (B, V) of docs/definitions.md, "The scales": the size of the terms of a filtered log-prob."""
    likeliest = want.max(axis=-1, keepdims=True)
    logits = np.where(inputs["logits"] > -np.inf, inputs["logits"], 0.0).astype(np.float64)
    if inputs.get("logit_bias") is not None:
        logits = np.abs(logits) + np.where(inputs["logit_bias"] > -np.inf, np.abs(inputs["logit_bias"]), 0.0)
    if "generated" in inputs:  # the largest possible count of a token
        most = inputs["generated"].shape[1]
        logits = (
            np.abs(logits) + abs(inputs.get("presence_penalty", 0.0)) + most * abs(inputs.get("frequency_penalty", 0.0))
        )
    sizes = np.abs(logits) * max(inputs["repetition_penalty"], 1.0 / inputs["repetition_penalty"])
    far = (np.max(sizes, axis=-1, keepdims=True) + sizes) / min(inputs["temperature"] or 1.0, 1.0)
    return np.asarray(far + np.log(logits.shape[-1]) + np.maximum(1.0, -likeliest))


def undecided(t: Draw, op: Op, inputs: Mapping[str, Any]) -> Evidence:
    """Require that rounding in the dtype of the logits decides no token of these inputs."""
    rows = np.isinf(t.textbook(op, **inputs)["logprobs"]).any(axis=-1)
    return t.precondition("rows in which rounding decides a token", int(rows.sum()), "<=", 0)


GAP = 0.012  # in probability; 151,936 float32 additions move a running sum by at most n·u = 0.009


def with_gap(rng: np.random.Generator, order: str) -> dict[str, Any]:
    """Return a long row with nearly all mass on 20 tokens, and a top-p well between two running sums."""
    logits = distinct(rng, 1, LARGE, "float32")
    likely = np.linspace(25.0, 25.5, 20).astype(np.float32)
    for row in logits:
        head = rng.choice(LARGE, likely.size, replace=False)
        head[0] = LARGE - 1  # including the last token
        row[head] = rng.permuted(likely)
    running = np.cumsum(np.exp(likely[::-1].astype(np.float64))) / np.exp(likely.astype(np.float64)).sum()
    between = float(np.float32((running[13] + running[14]) / 2))
    return {**OFF, "order": order, "top_p": between, "logits": logits}


TIED: dict[str, dict[str, Any]] = {
    "top-k": {"top_k": 40},
    "top-p": {"top_p": 0.75},
    "min-tokens": {"min_p": 0.75, "min_tokens_to_keep": 90},
    "both": {
        "top_k": 90,
        "top_p": 0.75,
    },  # the tied tokens that top-k keeps determine the mass of which top-p keeps a share
}


def tied(rng: np.random.Generator, filters: str, order: str, ties: str) -> dict[str, Any]:
    """Return rows in which dozens of tokens share a logit; `ties` of "any" leaves the choice to the subject."""
    logits = np.minimum(np.round(rng.normal(0.0, 2.0, (4, 600))), 7.0).astype(np.float32)
    return {**OFF, **TIED[filters], "order": order, "logits": logits, **({} if ties == "any" else {"ties": ties})}
