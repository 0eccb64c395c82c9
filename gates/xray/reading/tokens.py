"""The tokens of an update that decide: those of completions that one row alone has, with coefficient and error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gates.model import Array
from gates.xray.fit import quantile
from gates.xray.step import Step


@dataclass(frozen=True)
class Tokens:
    """Tokens as flat arrays; equal rows stand once, with the coefficient of one of them.

    Attributes:
        row: index of each token's row.
        position: in the row, padding included.
        column: of the token.
        value: coefficient.
        error: standard error of it.
    """

    row: Array
    position: Array
    column: Array
    value: Array
    error: Array

    @cached_property
    def quantile(self) -> float:
        """How many standard errors the largest of the errors exceeds once in a million times."""
        return quantile(len(self.value))

    @cached_property
    def zero(self) -> Array:
        """Whether each coefficient is zero within its error."""
        return np.asarray(np.abs(self.value) <= self.quantile * self.error)

    @cached_property
    def rows(self) -> list[int]:
        """The rows that have such tokens."""
        return sorted(set(self.row.tolist()))

    @cached_property
    def index(self) -> Array:
        """For each token, the place of its row among `rows`."""
        return np.searchsorted(np.array(self.rows, dtype=np.int64), self.row)

    def taken(self, which: Array) -> Tokens:
        """Return some of the tokens."""
        parts = (self.row, self.position, self.column, self.value, self.error)
        return Tokens(*(part[which] for part in parts))


def masked(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> Array:
    """Return which tokens a mask leaves out: without a coefficient now and before, or all first or all last ones of completions."""
    still: set[str] = set()
    for before in earlier:
        zero = before.fit.zero(np.arange(len(before.update.kinds)))
        still |= {key for key, off in zip(before.update.keys, zero, strict=True) if off}
    left_out = tokens.zero & np.array([step.update.keys[int(column)] in still for column in tokens.column], dtype=bool)
    for end in (0, -1):
        edges = {row: step.rows[row].completion[end] for row in tokens.rows}
        there = tokens.position == np.array([edges[row] for row in tokens.row])
        if there.sum() > 1 and tokens.zero[there].all():
            left_out |= there
    return np.asarray(left_out)


def tokens_of(step: Step) -> Tokens:
    """Return the tokens that decide, of an update."""
    parts: list[tuple[Array, ...]] = []
    for index in range(len(step.rows)):
        if step.alike[index][0] != index:
            continue
        places = step.own(index)
        values, errors = step.of(index, places)
        parts.append((np.full(len(places), index), places, step.rows[index].row.columns[places], values, errors))
    if not parts:
        nothing = np.array([], dtype=np.int64)
        return Tokens(nothing, nothing, nothing, nothing.astype(float), nothing.astype(float))
    return Tokens(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
