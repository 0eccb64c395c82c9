"""Draw two policies' log-probs of the same rows; bounds shared by the gates of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.model import Array, Bound

DTYPES = ("float32", "float64")
FORMS = ("whole", "masked", "holes", "prefix", "wider", "flat")
TOKENS = 31
ROUNDING = (
    "k·2u·S with S = |value|, of sequences |r|(1 + u·Σ|d|): differences without error, sums in float64 or compensated"
)


def bounds(quantity: str) -> dict[str, Bound]:
    """Return the bounds of full precision of a quantity in both dtypes, by name."""
    return {
        f"{quantity} error in 2u·S ({dtype})": Bound("derived", f"{ROUNDING}; k = {k:g}", k, level="precision")
        for dtype, k in (("float32", 4.0), ("float64", 8.0))
    }


def pair(
    rng: np.random.Generator,
    form: str,
    dtype: str,
    spread: float,
    *,
    rows: int = 7,
    drift: float = 0.0,
    hostile: bool = False,
) -> dict[str, Any]:
    """Return two policies' log-probs of rows of up to 31 tokens; `hostile` makes a row empty and masked slots NaN.

    Otherwise masked slots hold ordinary log-probs. Over the rows, the sum of a row's differences runs from -drift to drift,
    in addition to noise of deviation `spread` on each token.
    """
    lengths = rng.integers(1, TOKENS + 1, rows)
    lengths[4], lengths[-1] = TOKENS, TOKENS
    lengths[2] = 0 if hostile else lengths[2]
    mask = np.arange(TOKENS) < lengths[:, None]
    if form == "holes":
        mask &= rng.random(mask.shape) < 0.6
        mask[4, ::2] = True
        mask[:, 0] = lengths > 0
    first = -rng.gamma(1.5, 0.8, mask.shape)
    along = np.roll(
        np.linspace(-drift, drift, rows), rows // 2
    )  # the middle values, which no bound stops, at both ends
    along /= np.maximum(mask.sum(axis=1), 1)
    second = first - rng.normal(0.0, spread, mask.shape) - along[:, None]
    both = [x.astype(dtype) for x in (first, second)]
    if form == "flat":
        return {"pair": [x[mask] for x in both], "mask": None, "lengths": lengths}
    if form == "whole":
        return {"pair": both, "mask": None, "lengths": None}
    if hostile:
        both = [np.where(mask, x, np.nan).astype(dtype) for x in both]
    by_length = form in {"prefix", "wider"}
    if form == "wider":  # a padding column after the longest row
        both = [np.pad(x, ((0, 0), (0, 1)), constant_values=np.nan if hostile else -0.75) for x in both]
        both[1][:, -1] -= 0.5
    return {
        "pair": both,
        "mask": None if by_length else mask,
        "lengths": lengths if by_length else None,
    }


def moved(left: Array, right: Array) -> Array:
    """Return |left − right| where both are finite."""
    difference = np.abs(left.astype(np.float64) - right)
    return np.asarray(difference[np.isfinite(difference)])
