"""Rows of tokens: small shapes, the layouts in which they come, and rows that are empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from valid_inputs import Rng

Array = np.ndarray[Any, Any]
SHAPES = {
    "square": (6, 6),
    "as many groups as members": (9, 4),
    "one row": (1, 5),
    "one column": (6, 1),
    "one token": (1, 1),
    "tall": (12, 3),
    "wide": (4, 9),
}
LAYOUTS = ("mask", "holes", "prefixes", "beyond the longest", "flat", "whole")
EMPTY = ("none", "first", "last", "a group", "all but one")
DTYPES = ("float32", "float64")
FACTORS = {"shape": tuple(SHAPES), "layout": LAYOUTS, "empty": EMPTY, "dtype": DTYPES}


@dataclass(frozen=True, slots=True)
class Rows:
    """Which slots of (B, T) hold a token, and how arrays of them are given."""

    valid: Array
    layout: str

    @property
    def given(self) -> dict[str, Any]:
        """The inputs that say where tokens stand."""
        if self.layout in {"mask", "holes"}:
            return {"mask": self.valid, "lengths": None}
        lengths = None if self.layout == "whole" else self.valid.sum(axis=1).astype(np.int64)
        return {"mask": None, "lengths": lengths}

    def place(self, values: Array, dtype: str) -> Array:
        """Return (B, T) values as they are given: flat, or with all slots, those without a token included."""
        return (values[self.valid] if self.layout == "flat" else values).astype(dtype)


def draw(rng: Rng, shape: str, layout: str, empty: str) -> Rows:
    """Return rows of up to T tokens; of them the last one is full, unless it is empty."""
    count, width = SHAPES[shape]
    if layout == "whole":
        return Rows(np.ones((count, width), bool), layout)
    longest = max(1, width - 2) if layout == "beyond the longest" else width
    lengths = rng.integers(1, longest + 1, count)
    lengths[-1] = longest
    if count > 1:
        lengths[
            {"none": [], "first": [0], "last": [-1], "a group": slice(0, 3), "all but one": slice(1, None)}[empty]
        ] = 0
    valid = np.arange(width) < lengths[:, None]
    if layout == "holes":
        holes = rng.random(valid.shape) < 0.4
        holes[np.arange(count), np.maximum(lengths - 1, 0)] = False  # the last token of a row stays
        valid &= ~holes
    return Rows(valid, layout)


def logprobs(rng: Rng, rows: Rows) -> Array:
    """Return log-probs, with some multiples of a quarter that every dtype holds."""
    drawn = -rng.gamma(1.5, 0.8, rows.valid.shape)
    return np.where(rng.random(rows.valid.shape) < 0.3, np.round(drawn * 4) / 4, drawn)


STEPS = {"same": 0.0, "close": 1e-4, "typical": 0.3, "far": 4.0, "huge": 900.0, "quarters": 0.25, "some the same": 0.3}


def moved(rng: Rng, values: Array, step: str) -> Array:
    """Return other log-probs: equal ones, close ones, ones of which exp overflows, or ones that lie exact quarters away."""
    if step == "quarters":
        return np.asarray(np.round(values * 4) / 4 + 0.25 * rng.integers(-3, 4, values.shape))
    change = rng.normal(0.0, STEPS[step], values.shape)
    return np.asarray(
        values - np.where(rng.random(values.shape) < 0.5, 0.0, change) if step == "some the same" else values - change
    )
