"""Bias and penalties of a sampler, which change the logits before any filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, plain, where
from gates.arithmetic.number import UNIT, Number
from gates.families.program import Choices, Data
from gates.model import Array

FORMS = ("at once", "one by one")  # of repeated penalties


def processed(data: Data, chosen: Choices) -> tuple[Value, Array]:
    """Return the logits with bias and penalties, and the mask of possible tokens."""
    logits = np.asarray(data["logits"])
    possible = np.asarray(logits > -np.inf)
    x = data.lift(np.where(possible, logits, 0.0).astype(logits.dtype))
    if chosen["bias"] != "none":
        possible = possible & (np.asarray(data["logit_bias"]) > -np.inf)
    for step in ("first", "repetition", "counts", "last"):
        if step == "repetition" and chosen["repetition"] != 1.0:
            x = _repeated(x, data, chosen)
        elif step == "counts" and (chosen["presence"] or chosen["frequency"]):
            x = _counted(x, data, chosen)
        elif chosen["bias"] == step or (chosen["bias"] == "negated" and step == "first"):
            x = x - _bias(data) if chosen["bias"] == "negated" else x + _bias(data)
    return x, possible


def _bias(data: Data) -> Value:
    """Return the bias of each token, with a rounding to the dtype of the logits; 0 for −inf."""
    logit_bias, dtype = np.asarray(data["logit_bias"], np.float64), np.asarray(data["logits"]).dtype.name
    bias = np.where(logit_bias > -np.inf, logit_bias, 0.0)
    if not data.bounded:
        return bias
    return Number(bias, dtype, np.where(np.float32(bias) == bias, 0.0, UNIT[dtype] * np.abs(bias)))


def _scalar(data: Data, value: float) -> Value:
    return data.scalar(value, np.asarray(data["logits"]).dtype.name)


def occurrences(ids: Any, shape: tuple[int, ...], padding: str) -> Array:
    """Count each token in the ids of its row; −1 is padding, or with "last token" the last token."""
    counts = np.zeros(shape)
    for row, tokens in zip(counts, np.asarray(ids), strict=True):
        np.add.at(row, tokens if padding == "last token" else tokens[tokens >= 0], 1.0)
    return counts


def _occurrences(data: Data, name: str, choice: str, shape: tuple[int, ...], padding: str) -> Array:
    """Count each token in the ids of an input, or of what an edit reads in its place."""
    counts = occurrences(data[choice if choice in {"history", "generated"} else name], shape, padding)
    if choice == "batch":
        return np.broadcast_to(counts.sum(axis=0), counts.shape)
    return np.roll(counts, -1, axis=0) if choice == "next row" else counts


def _repeated(x: Value, data: Data, chosen: Choices) -> Value:
    """Apply the repetition penalty to the tokens of the history."""
    counts = _occurrences(data, "history", chosen["repetition of"], plain(x).shape, chosen["padding"])
    rule, penalty = chosen["repetition rule"], _scalar(data, chosen["repetition"])
    seen, positive = counts > 0, x > 0.0
    if rule == "each time":
        for time in range(int(counts.max())):
            x = where(counts > time, where(positive, x / penalty, x * penalty), x)
        return x
    changed: Mapping[str, Any] = {
        "by sign": lambda: where(positive, x / penalty, x * penalty),
        "divided": lambda: x / penalty,
        "multiplied": lambda: x * penalty,
        "inverted": lambda: where(positive, x * penalty, x / penalty),
        "subtracted": lambda: x - penalty,
        "logarithm": lambda: x - float(np.log(chosen["repetition"])),
        "every token": lambda: where(positive, x / penalty, x * penalty),
        "twice": lambda: where(positive, x / penalty / penalty, x * penalty * penalty),
    }
    if rule == "every token":
        return changed[rule]()
    return where(~seen if rule == "others" else seen, changed["by sign" if rule == "others" else rule](), x)


def _counted(x: Value, data: Data, chosen: Choices) -> Value:
    """Subtract the presence penalty once and the frequency penalty for each occurrence."""
    counts = _occurrences(data, "generated", chosen["counts of"], plain(x).shape, chosen["padding"])
    once = (counts > 0).astype(np.float64)
    rule, presence, frequency = chosen["counts"], *(_scalar(data, chosen[name]) for name in ("presence", "frequency"))
    if chosen["counted"] == "one by one":
        x = where(counts > 0, x - presence, x)
        for time in range(int(counts.max())):
            x = where(counts > time, x - frequency, x)
        return x
    of_presence = counts if rule in {"presence each time", "swapped"} else once
    of_frequency = once if rule in {"frequency once", "swapped"} else counts
    return x - frequency * of_frequency - presence * of_presence
