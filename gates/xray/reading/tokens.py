"""The tokens of an update that decide: those of completions that one row alone has, with coefficient and error."""

from __future__ import annotations

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
