"""Read the mask of a recorded step, and its arrays piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gates.arithmetic.narrow import of_half
from gates.model import Array, ConfigurationError
from gates.recorded.file import StepFile

AT_ONCE = 1 << 16  # slots computed at once
READ_AT_ONCE = 1 << 22  # slots of an array read at once
MAY_BE_NAN = ("sampling",)  # NaN: not recorded
LOGPROBS = frozenset(("policy", "old", "reference", "sampling"))
ROUNDED = 1e-3  # nats above 0 that rounding of logits may give


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows, truncated after their last token.

    Attributes:
        start: the first row.
        stop: the row after the last.
        mask: (rows, slots), true on tokens.
    """

    start: int
    stop: int
    mask: Array


class Step:
    """A recorded step and the lengths of its rows.

    Attributes:
        file: the opened file.
        lengths: (B,), the number of tokens in each row.
    """

    def __init__(self, file: StepFile) -> None:
        """Read the mask.

        Raises:
            ConfigurationError: it has other values than 0 and 1, or no token.
        """
        self.file = file
        self.lengths = np.zeros(file.rows, np.int64)
        self._ends = np.zeros(file.rows, np.int64)
        if not file.width:
            return
        size = max(1, READ_AT_ONCE // file.width)
        for start in range(0, file.rows, size):
            mask = self._mask(start, min(start + size, file.rows))
            self.lengths[start : start + size] = mask.sum(axis=1)
            self._ends[start : start + size] = np.where(mask.any(axis=1), file.width - mask[:, ::-1].argmax(axis=1), 0)
        if not self.lengths.any():
            raise ConfigurationError(
                f"{file.path}: tensor `mask` holds no token, must be 1 on the tokens of completions"
            )

    @property
    def tokens(self) -> int:
        """The number of tokens in the step."""
        return int(self.lengths.sum())

    @property
    def trained(self) -> Array:
        """Which rows have tokens, (B,); all if the file has no arrays of tokens."""
        return self.lengths > 0 if self.file.width else np.ones(self.file.rows, np.bool_)

    def _mask(self, start: int, stop: int) -> Array:
        if "mask" not in self.file:
            return np.ones((stop - start, self.file.width), np.bool_)
        values = self.file.read("mask", start, stop)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            row, slot = np.argwhere(wrong)[0]
            raise ConfigurationError(
                f"{self.file.path}: tensor `mask` is {values[row, slot]} at [{start + row}, {slot}], must be 0 or 1 everywhere"
            )
        return np.asarray(values, np.bool_)

    @property
    def in_half_precision(self) -> bool:
        """Whether every log-prob of the policy is a number of half precision, as a model in bfloat16 gives them."""
        return all(of_half(self.slots("policy", piece)[piece.mask]).all() for piece in self.pieces())

    def pieces(self, start: int = 0, stop: int | None = None, *, at_once: int = AT_ONCE) -> Iterator[Piece]:
        """Yield pieces of at most `at_once` slots, or of one row."""
        end = self.file.rows if stop is None else stop
        most = max(1, min(at_once, READ_AT_ONCE // self.file.width))  # rows, which are read in full width
        while start < end:
            widths = np.maximum.accumulate(self._ends[start : min(end, start + most)])
            fits = max(1, int(np.count_nonzero(widths * np.arange(1, len(widths) + 1) <= at_once)))
            yield self.piece(start, start + fits)
            start += fits

    @property
    def slots_read(self) -> int:
        """The slots of all rows, truncated after the last token of the longest."""
        return self.file.rows * max(1, int(self._ends.max()))

    def piece(self, start: int, stop: int, *, cut: bool = True) -> Piece:
        """Return some rows, truncated after their last token (at least one slot stays) or in full width."""
        width = max(1, int(self._ends[start:stop].max())) if cut else self.file.width
        return Piece(start, stop, self._mask(start, stop)[:, :width])

    def slots(self, name: str, piece: Piece) -> Array:
        """Return an array of the piece's rows: (rows, slots), or (rows,) if rows have one number.

        Raises:
            ConfigurationError: a token's value is not finite, or a log-prob is above 0.
        """
        values = self.file.read(name, piece.start, piece.stop)
        values = values[:, : piece.mask.shape[1]] if values.ndim == 2 else values
        counted = piece.mask if values.ndim == 2 else piece.mask.any(axis=1)
        wrong = counted & (np.isinf(values) if name in MAY_BE_NAN else ~np.isfinite(values))
        if wrong.any():
            first = [int(i) for i in np.argwhere(wrong)[0]]
            index = [piece.start + first[0], *first[1:]]
            raise ConfigurationError(
                f"{self.file.path}: tensor `{name}` is {values[tuple(first)]} at {index}, where a token stands: record a finite "
                "number there, or set `mask` to 0"
            )
        above = counted & (values > ROUNDED) if name in LOGPROBS else np.zeros(1, np.bool_)
        if above.any():
            row, slot = (int(i) for i in np.argwhere(above)[0])
            raise ConfigurationError(
                f"{self.file.path}: tensor `{name}` is {values[row, slot]:.6g} in row {piece.start + row}, slot {slot}, must be "
                "a log-prob, at most 0: record log-softmax values, not logits or probabilities"
            )
        return values

    def arrays(self, names: Sequence[str], piece: Piece) -> dict[str, Any]:
        """Return the named arrays, None for those that the file lacks."""
        return {name: self.slots(name, piece) if name in self.file else None for name in names}

    @cached_property
    def group_size(self) -> int | None:
        """The number of rows of each prompt if it is constant and they are contiguous, else None."""
        if "groups" not in self.file:
            size = self.file.settings.get("group_size")
            return None if size is None else int(size)
        ids = self.file.read("groups")
        edges = np.flatnonzero(np.diff(ids)) + 1
        sizes = np.diff(np.concatenate([[0], edges, [len(ids)]]))
        together = len(sizes) == len(np.unique(ids)) and bool(np.all(sizes == sizes[0]))
        return int(sizes[0]) if together else None

    @cached_property
    def groups(self) -> Array | None:
        """(P, G) row indices of each prompt, padded with −1."""
        if self.group_size is not None:
            return np.arange(self.file.rows).reshape(-1, self.group_size)
        if "groups" not in self.file:
            return None
        _, where, sizes = np.unique(self.file.read("groups"), return_inverse=True, return_counts=True)
        order = np.argsort(where, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        position = np.arange(len(order)) - np.repeat(starts, sizes)
        if len(sizes) * int(sizes.max()) > 64 * len(order) + (1 << 20):
            raise ConfigurationError(
                f"{self.file.path}: tensor `groups` has {len(sizes)} prompts of up to {sizes.max()} rows: record prompts of "
                "similar sizes"
            )
        rows = np.full((len(sizes), int(sizes.max())), -1)
        rows[np.repeat(np.arange(len(sizes)), sizes), position] = order
        return rows
