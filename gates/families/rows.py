"""Rows of tokens in a forward definition: their layout, misread masks, and sums over tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, where
from gates.families.program import Data
from gates.model import Array

MASKS: Mapping[str, str] = {
    "shifted left": "completion mask shifted by one position to the left (the last token of a row is left out)",
    "shifted right": "completion mask shifted by one position to the right (the first token of a row is left out)",
    "one more": "the slot after the last token counted, as a mask that is one too long",
    "without last": "the last token of each row, its end-of-sequence token, left out",
    "without first": "the first token of each row left out",
    "all": "every slot counted, padding too (the mask is ignored)",
    "inverted": "the mask inverted: padding counted, completions not",
    "filled": "the holes of the mask counted",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of tokens as (B, T), from an array of that shape or a flat one, (N,).

    Attributes:
        counts: (B, T) bool, true on tokens.
        place: (B, T), the index of each slot in the flat array; None for an array of shape (B, T).
    """

    counts: Array
    place: Array | None

    @classmethod
    def of(cls, inputs: Mapping[str, Any], name: str) -> Grid:
        """Return the grid of an input with `mask`, `lengths` or neither, and an optional `row_mask`."""
        shape, lengths = np.shape(inputs[name]), inputs.get("lengths")
        if len(shape) == 1:
            sizes = np.asarray([shape[0]] if lengths is None else lengths)
            counts = np.arange(max(int(sizes.max(initial=1)), 1)) < sizes[:, None]
            place = np.zeros(counts.shape, np.int64)
            place[counts] = np.arange(int(sizes.sum()))
            return cls(counts, place)
        mask = inputs.get("mask")
        if lengths is not None:
            mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
        counts = np.ones(shape, bool) if mask is None else np.asarray(mask, bool)
        excluded = inputs.get("row_mask")
        return cls(counts if excluded is None else counts & np.asarray(excluded, bool)[:, None], None)

    def wide(self, value: Value, *, by_row: bool = False) -> Value:
        """Return values of slots or rows as (B, T).

        Args:
            value: (B, T), (N,) of flat tokens, or (B,).
            by_row: whether an array of N = B values holds those of rows.
        """
        rows = by_row and value.shape == (len(self.counts),)
        if self.place is not None and not rows and value.shape == (int(self.counts.sum()),):
            return where(self.counts, value[self.place], 0.0)
        if len(value.shape) == 1:
            return value.reshape(-1, 1) * np.ones(self.counts.shape)
        return value

    def lifted(self, data: Data, name: str) -> Value:
        """Return an input of slots or rows as (B, T)."""
        return self.wide(data.lift(data[name]))

    def back(self, wide: Value) -> Value:
        """Return (B, T) values in the layout of the input."""
        return wide[self.counts] if self.place is not None else wide


def misread(counts: Array, choice: str) -> Array:
    """Return the mask as misread by one of `MASKS`; any other choice leaves it unchanged."""
    if choice == "shifted left":
        return np.pad(counts[:, 1:], ((0, 0), (0, 1)))
    if choice == "shifted right":
        return np.pad(counts[:, :-1], ((0, 0), (1, 0)))
    if choice == "one more":
        return np.asarray(counts | np.pad(counts[:, :-1], ((0, 0), (1, 0))))
    if choice in {"without last", "without first"}:
        index = (
            counts.shape[1] - 1 - counts[:, ::-1].argmax(axis=1) if choice == "without last" else counts.argmax(axis=1)
        )
        return np.asarray(counts & (np.arange(counts.shape[1]) != index[:, None]))
    if choice == "filled":
        return np.asarray(counts[:, ::-1].cumsum(axis=1)[:, ::-1] > 0)
    mask: Array = {"all": np.ones_like(counts), "inverted": ~counts}.get(choice, counts)
    return mask


def tokens(counts: Array) -> Array:
    """Return the number of tokens of each row, (B, 1) float64, at least 1."""
    return np.asarray(np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


def total(value: Value, counts: Array) -> Value:
    """Return the sum over the tokens of each row, (B, 1)."""
    return where(counts, value, 0.0).sum(1, keepdims=True)
