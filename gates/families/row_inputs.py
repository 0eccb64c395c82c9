"""Design rows of tokens: batches of several shapes, in the layout of an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.program import Inputs
from gates.families.rows import Grid
from gates.model import Array

SHAPES = ((4, 7), (6, 5), (2, 11), (8, 6), (5, 9), (6, 8), (3, 10), (4, 12))
"""Rows and slots, all different, so that no factor can hide in the shape."""


def masks(example: Inputs, first: str, rng: np.random.Generator) -> Iterator[Array]:
    """Yield eight masks with different lengths and padding; empty rows, holes and left padding only if the example has them.

    Args:
        example: a call.
        first: the name of an array of tokens in it.
        rng: the generator of the lengths.
    """
    counts = np.asarray(Grid.of(example, first).counts)
    prefix = example.get("mask") is None
    holes = not prefix and bool(np.any(np.abs(np.diff(counts.astype(np.int8), axis=1)).sum(axis=1) > 1))
    left = not prefix and not holes and not counts[:, 0].all() and counts[:, -1].any()
    full = prefix and example.get("lengths") is None
    for index, (rows, width) in enumerate(SHAPES):
        lengths = rng.permutation(np.linspace(2, width - 1, rows).round().astype(np.int64))
        lengths[0] = 1 if index == 4 else lengths[0]
        if index in {2, 5} and not counts.any(axis=1).all():
            lengths[1] = 0
        mask = np.arange(width) < (np.full(rows, width) if full else lengths)[:, None]
        if holes:
            mask &= (rng.random(mask.shape) < 0.75) | (np.arange(width) == 0)
        yield np.asarray(mask[:, ::-1] if left else mask)


def laid_out(example: Inputs, first: str, arrays: dict[str, Array], mask: Array) -> dict[str, Any]:
    """Return a call with (B, T) arrays in the example's layout and dtype; inputs absent from the example stay None.

    Args:
        example: a call.
        first: the name of an array of tokens in it, which sets dtype and number of axes.
        arrays: (B, T), by name.
        mask: (B, T), true on tokens.
    """
    like = np.asarray(example[first])
    converted = {name: None if example.get(name) is None else x.astype(like.dtype) for name, x in arrays.items()}
    if example.get("mask") is not None:
        return {**example, **converted, "mask": mask}
    if example.get("lengths") is None:
        return {**example, **converted}
    if like.ndim == 1:
        converted = {name: None if x is None else x[mask] for name, x in converted.items()}
    return {**example, **converted, "lengths": mask.sum(axis=1)}


def tokens(inputs: Inputs, first: str) -> Array:
    """Return the mask of tokens in the shape of an array."""
    grid = Grid.of(inputs, first)
    return np.asarray(grid.back(np.asarray(grid.counts)))


def places(inputs: Inputs, first: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name, in the shape of the arrays."""
    grid = Grid.of(inputs, first)
    counts = np.asarray(grid.counts)
    columns = np.arange(counts.shape[1])
    start = columns == counts.argmax(axis=1)[:, None]
    end = columns == (counts.shape[1] - 1 - counts[:, ::-1].argmax(axis=1))[:, None]
    named = {
        "in slots without a token": ~counts,
        "at the first token of a row": counts & start,
        "after the first token of a row": counts & ~start,
        "at the last token of a row": counts & end,
        "before the last token of a row": counts & ~end,
        "in rows of fewer than three tokens": counts & (counts.sum(axis=1) < 3)[:, None],
        "after the first row": counts & (np.arange(len(counts)) > 0)[:, None],
    }
    for name, slots in named.items():
        yield name, slots[counts] if grid.place is not None else slots


def row_places(inputs: Inputs, first: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of rows by name, (B,)."""
    counts = np.asarray(Grid.of(inputs, first).counts)
    sums = counts.sum(axis=1)
    yield "in rows of fewer than three tokens", sums < 3
    yield "in rows without a token", sums == 0
    yield "after the first row", np.arange(len(counts)) > 0
    yield "in the first row", np.arange(len(counts)) == 0
