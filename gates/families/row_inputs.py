"""Rows of tokens: the layouts in which they are passed, batches for designed calls, and valid rows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.program import Inputs
from gates.families.rows import Grid
from gates.families.valid import DTYPES
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


def laid_out(example: Inputs, first: str, values: dict[str, Array], mask: Array) -> dict[str, Any]:
    """Return a call with (B, T) arrays in the example's layout and dtype; what the example leaves out stays None.

    Args:
        example: a call.
        first: the name of an array of tokens in it, whose dtype and number of dimensions the values take.
        values: (B, T), by name.
        mask: (B, T), the slots that hold a token.
    """
    dtype = np.asarray(example[first]).dtype
    cast = {name: None if example.get(name) is None else x.astype(dtype) for name, x in values.items()}
    return passed({**example, **cast}, mask, layout_of(example, first))


def tokens(inputs: Inputs, first: str) -> Array:
    """Return the mask of tokens in the shape of an array."""
    grid = Grid.of(inputs, first)
    return np.asarray(grid.back(np.asarray(grid.counts)))


def edges(counts: Array) -> tuple[Array, Array]:
    """Return the first and the last token of each row, from the slots that hold one."""
    columns = np.arange(counts.shape[1])
    last = counts.shape[1] - 1 - counts[:, ::-1].argmax(axis=1)
    return columns == counts.argmax(axis=1)[:, None], columns == last[:, None]


def slots(counts: Array) -> dict[str, Array]:
    """Return sets of slots by name, (B, T)."""
    first, last = edges(counts)
    return {
        "in slots without a token": ~counts,
        "at the first token of a row": counts & first,
        "after the first token of a row": counts & ~first,
        "at the last token of a row": counts & last,
        "before the last token of a row": counts & ~last,
        "in rows of fewer than three tokens": counts & (counts.sum(axis=1) < 3)[:, None],
    }


def places(inputs: Inputs, first: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name, in the shape of the arrays."""
    grid = Grid.of(inputs, first)
    counts = np.asarray(grid.counts)
    later = {"after the first row": counts & (np.arange(len(counts)) > 0)[:, None]}
    yield from in_layout(grid, slots(counts) | later)


def in_layout(grid: Grid, named: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots in the shape of the arrays."""
    yield from ((name, place[grid.counts] if grid.place is not None else place) for name, place in named.items())


def row_places(inputs: Inputs, first: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of rows by name, (B,)."""
    counts = np.asarray(Grid.of(inputs, first).counts)
    sums = counts.sum(axis=1)
    yield "in rows of fewer than three tokens", sums < 3
    yield "in rows without a token", sums == 0
    yield "after the first row", np.arange(len(counts)) > 0
    yield "in the first row", np.arange(len(counts)) == 0


# --- valid rows: few slots, and what is rare in training is common

EMPTY: dict[str, Any] = {"none": [], "first": [0], "last": [-1], "a group": slice(3), "all but one": slice(1, None)}
ROWS: dict[str, tuple[Any, ...]] = {
    "shape": ((6, 6), (9, 4), (1, 5), (6, 1), (1, 1), (12, 3), (4, 9)),
    "layout": ("mask", "holes", "lengths", "wider", "flat", "whole"),
    "empty": tuple(EMPTY),
    "dtype": DTYPES,
}
MOVED: dict[str, tuple[Any, ...]] = {
    **ROWS,
    "step": (0.3, 0.0, 1e-4, 4.0, 900.0, "quarters", "some the same"),
    "nan_padding": (False, True),
}


def valid(rng: np.random.Generator, shape: tuple[int, int], layout: str, empty: str) -> Array:
    """Return the mask of rows of tokens; the last row is full, unless it is empty."""
    rows, width = shape
    if layout == "whole":
        return np.ones(shape, bool)
    longest = max(1, width - 2) if layout == "wider" else width
    lengths = rng.integers(1, longest + 1, rows)
    lengths[-1] = longest
    if rows > 1:
        lengths[EMPTY[empty]] = 0
    mask = np.arange(width) < lengths[:, None]
    if layout == "holes":  # the last token of a row stays
        mask &= (rng.random(shape) >= 0.4) | (np.arange(width) == lengths[:, None] - 1)
    return np.asarray(mask)


def given(inputs: Inputs, mask: Array, layout: str) -> dict[str, Any]:
    """Return a call whose (B, T) arrays are passed in one of the layouts of `ROWS`."""
    return passed(inputs, mask, {"wider": "lengths"}.get(layout, layout))


def step_from(rng: np.random.Generator, values: Array, step: float | str) -> Array:
    """Return log-probs that lie a step away: none, a small one, one of which exp overflows, or exact quarters."""
    if step == "quarters":
        return np.asarray(np.round(values * 4) / 4 + 0.25 * rng.integers(-3, 4, values.shape))
    change = rng.normal(0.0, 0.3 if isinstance(step, str) else step, values.shape)
    return np.asarray(
        values - (np.where(rng.random(values.shape) < 0.5, 0.0, change) if isinstance(step, str) else change)
    )


def logprobs(
    rng: np.random.Generator, mask: Array, names: tuple[str, ...], step: float | str, **how: Any
) -> dict[str, Array]:
    """Return log-probs of the names, of which the first has multiples of a quarter, and the others are moved from it.

    `how`: dtype, and whether NaN stands where no token is.
    """
    first = arrays.logprobs(rng, mask.shape)
    rounded = (rng.random(mask.shape) < 0.3) | (step == "quarters")
    first = np.where(rounded, np.round(first * 4) / 4, first)
    drawn = [first, *(step_from(rng, first, step) for _ in names[1:])]
    hidden = ~mask & how["nan_padding"]
    return {name: np.where(hidden, np.nan, x).astype(how["dtype"]) for name, x in zip(names, drawn, strict=True)}


def moved(
    rng: np.random.Generator, names: tuple[str, ...], *, shape: tuple[int, int], layout: str, empty: str, **choices: Any
) -> dict[str, Any]:
    """Return log-probs of several policies as `MOVED` chooses, where their tokens stand, and the choices that are settings."""
    mask = valid(rng, shape, layout, empty)
    how = {name: choices.pop(name) for name in ("step", "dtype", "nan_padding")}
    return {**given(logprobs(rng, mask, names, **how), mask, layout), **choices}
