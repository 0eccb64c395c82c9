"""Rows of tokens as the MLX trainer takes them: (B, T) float32 with a mask, however they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of tokens as (B, T): they come so, or flat (N,), one row after the other."""

    mask: Array
    flat: bool

    def wide(self, name: str, values: Array) -> Array:
        """An array with a number for each token as (B, T) float32; 0 where flat rows have none."""
        array = np.asarray(values)
        expected = (int(self.mask.sum()),) if self.flat else self.mask.shape
        if array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, must be {expected}")
        if array.dtype == np.float64:
            raise NotImplementedError(f"{name} in float64; the trainer's losses are float32")
        if not self.flat:
            return np.ascontiguousarray(array, np.float32)
        grid = np.zeros(self.mask.shape, np.float32)
        grid[self.mask] = array
        return grid

    def row_or_token(self, name: str, values: Array) -> Array:
        """(B,) as it is, or an array with a number for each token as (B, T)."""
        array = np.asarray(values)
        if array.shape != self.mask.shape[:1]:
            return self.wide(name, array)
        if array.dtype == np.float64:
            raise NotImplementedError(f"{name} in float64; the trainer's losses are float32")
        return np.ascontiguousarray(array, np.float32)

    def back(self, values: Array) -> Array:
        """A (B, T) array in the layout that came."""
        return values[self.mask] if self.flat else values


def grid_of(shape: tuple[int, ...], mask: Array | None, lengths: Array | None) -> Grid:
    """Where tokens stand in arrays of this shape: by a mask, by valid prefixes, or by the lengths of flat rows."""
    if lengths is None:
        if len(shape) != 2:
            raise ValueError(f"policy has shape {shape}, must be (B, T), or (N,) with lengths")
        marks = np.ones(shape, np.bool_) if mask is None else np.asarray(mask)
        if marks.shape != shape:
            raise ValueError(f"mask has shape {marks.shape}, must be {shape}")
        return Grid(np.ascontiguousarray(marks, np.bool_), flat=False)
    sizes = np.asarray(lengths, np.int64)
    width = shape[1] if len(shape) == 2 else int(sizes.max(initial=1))
    return Grid(np.arange(width) < sizes[:, None], flat=len(shape) == 1)
