"""Draw two policies' log-probs of the same rows; bounds shared by the gates of ratios."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families import arrays, row_inputs
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
    names: tuple[str, str],
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
    first = arrays.logprobs(rng, mask.shape)
    along = np.roll(np.linspace(-drift, drift, rows), rows // 2)  # at both ends the weights that no bound stops
    along /= np.maximum(mask.sum(axis=1), 1)
    second = first - rng.normal(0.0, spread, mask.shape) - along[:, None]
    both = [x.astype(dtype) for x in (first, second)]
    if hostile and form not in {"flat", "whole"}:
        both = [np.where(mask, x, np.nan).astype(dtype) for x in both]
    layout = {"prefix": "lengths", "wider": "lengths"}.get(form, form)
    drawn = row_inputs.passed(dict(zip(names, both, strict=True)), mask, layout)
    if form == "wider":  # a column behind the longest row, so that it is not the width
        for name, less in zip(names, (0.0, 0.5), strict=True):
            drawn[name] = np.pad(drawn[name], ((0, 0), (0, 1)), constant_values=np.nan if hostile else -0.75)
            drawn[name][:, -1] -= less
    return drawn


def moved(left: Array, right: Array) -> Array:
    """Return |left − right| where both are finite."""
    difference = np.abs(left.astype(np.float64) - right)
    return np.asarray(difference[np.isfinite(difference)])
