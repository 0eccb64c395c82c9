"""The NumPy baseline's linear layer with a low-rank adapter and dropout of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


def lora_linear(
    *, x: Array, weight: Array, a: Array, b: Array, scale: float, p: float, draw: Sequence[int] | None
) -> dict[str, Array]:
    """Return the output and the mask of kept inputs of the adapter; `draw` is None outside an update."""
    kept = np.ones(x.shape, np.bool_) if draw is None else mask(x.shape, p, draw)
    dropped = np.where(kept, x, 0.0) / (1.0 if draw is None else 1.0 - p)
    wide = [array.astype(np.float64) for array in (x, weight, dropped, a, b)]
    y = wide[0] @ wide[1].T + scale * (wide[2] @ wide[3]) @ wide[4]
    return {"y": y.astype(x.dtype), "kept": kept.astype(x.dtype)}


def mask(shape: tuple[int, ...], p: float, draw: Sequence[int]) -> Array:
    """Return the mask of kept elements, each with probability 1 - p, as a function of the draw's numbers."""
    kept: Array = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(draw)))).random(shape) >= p
    return kept
