"""Rows of tokens: the layouts in which they are passed, batches for designed calls, and valid rows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families.program import Inputs
from gates.families.rows import Grid
from gates.model import Array

SHAPES = ((4, 7), (6, 5), (2, 11), (8, 6), (5, 9), (6, 8), (3, 10), (4, 12))
"""Rows and slots: no two are alike, so that no scale is free."""


def masks(example: Inputs, first: str, rng: np.random.Generator) -> Iterator[Array]:
    """Yield eight masks: lengths differ, arrays are wider than their longest row; empty rows, holes and padding as the example has.

    Args:
        example: a call.
        first: the name of an array of tokens in it.
        rng: what lengths are drawn with.
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


def passed(inputs: Inputs, mask: Array, layout: str) -> dict[str, Any]:
    """Return a call whose (B, T) arrays are passed in a layout; inputs of other shapes stay.

    Args:
        inputs: a call.
        mask: (B, T), the slots that hold a token.
        layout: "lengths", "flat": (N,) and lengths; "whole": every slot is a token; any other word: with the mask.
    """
    if layout not in {"lengths", "flat"}:
        return {**inputs, "mask": None if layout == "whole" else mask, "lengths": None}
    flat = {name: x[mask] for name, x in inputs.items() if layout == "flat" and np.shape(x) == mask.shape}
    return {**inputs, **flat, "mask": None, "lengths": mask.sum(axis=1)}


def layout_of(example: Inputs, first: str) -> str:
    """Return the layout of a call, from the name of an array of tokens in it."""
    if example.get("mask") is not None:
        return "mask"
    if example.get("lengths") is None:
        return "whole"
    return "flat" if np.ndim(example[first]) == 1 else "lengths"


def laid_out(example: Inputs, first: str, arrays: dict[str, Array], mask: Array) -> dict[str, Any]:
    """Return a call with (B, T) arrays in the example's layout and dtype; what the example leaves out stays None.

    Args:
        example: a call.
        first: the name of an array of tokens in it, whose dtype and number of dimensions the arrays take.
        arrays: (B, T), by name.
        mask: (B, T), the slots that hold a token.
    """
    dtype = np.asarray(example[first]).dtype
    cast = {name: None if example.get(name) is None else x.astype(dtype) for name, x in arrays.items()}
    return passed({**example, **cast}, mask, layout_of(example, first))


def tokens(inputs: Inputs, first: str) -> Array:
    """Return which elements of an array of tokens are tokens."""
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
    for name, found in named.items():
        yield name, found[counts] if grid.place is not None else found


def row_places(inputs: Inputs, first: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of rows by name, (B,)."""
    counts = np.asarray(Grid.of(inputs, first).counts)
    sums = counts.sum(axis=1)
    yield "in rows of fewer than three tokens", sums < 3
    yield "in rows without a token", sums == 0
    yield "after the first row", np.arange(len(counts)) > 0
    yield "in the first row", np.arange(len(counts)) == 0
