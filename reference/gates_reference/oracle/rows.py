"""Completions as rows: a (B, T) array with a mask or valid prefixes, or a flat (N,) array, one after the other."""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.inputs import Bools, Floats, Ints, floats, integers, mask_of

Scalar = TypeVar("Scalar", bound=np.generic)


class Rows(NamedTuple):
    """Where the tokens of B rows stand. Everything is computed on (B, T) and given back in the layout that came.

    Attributes:
        counts: (B, T), the slots that hold a token.
        flat: whether the arrays that came are (N,).
    """

    counts: Bools
    flat: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an array with a number for each token, as it came."""
        return (int(np.sum(self.counts)),) if self.flat else self.counts.shape

    @property
    def lengths(self) -> Ints:
        """(B,), the tokens of each row."""
        return np.asarray(np.sum(self.counts, axis=1), dtype=np.int64)

    def without(self, row_mask: npt.ArrayLike) -> "Rows":
        """These rows of (B, T), without tokens where `row_mask` (B,) is 0."""
        if self.flat:
            raise ValueError("`row_mask` is given with flat rows, must be None there")
        kept = mask_of(row_mask, self.counts.shape[:1])
        return self._replace(counts=self.counts & kept[:, None])

    def grid(self, name: str, value: npt.ArrayLike) -> Floats:
        """An array with a number for each token as (B, T) float64; 0.0 in slots without one, whatever they held."""
        array = floats(name, value, shape=self.shape)
        if not self.flat:
            return np.where(self.counts, array, 0.0)
        wide = np.zeros(self.counts.shape)
        wide[self.counts] = array
        return wide

    def back(self, wide: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """A (B, T) array in the layout that came."""
        return wide[self.counts] if self.flat else wide


def rows_of(name: str, shape: tuple[int, ...], *, mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None) -> Rows:
    """The rows of an array of this shape.

    Args:
        name: the array's, for messages.
        shape: (B, T), or (N,) with `lengths`.
        mask: (B, T), 1 on tokens; or
        lengths: (B,), the valid prefix of each row; for (N,) the rows' lengths, which sum to N. With neither every
            slot of (B, T) holds a token.

    Raises:
        ValueError: both, neither for (N,), or one that does not fit.
    """
    if mask is not None and lengths is not None:
        raise ValueError("`mask` and `lengths` are both given, must be one of them")
    if len(shape) not in (1, 2) or (len(shape) == 1 and lengths is None):
        raise ValueError(f"`{name}` has shape {shape}, must be (B, T), or (N,) with `lengths`")
    if lengths is None:
        return Rows(np.ones(shape, np.bool_) if mask is None else mask_of(mask, shape), flat=False)
    sizes = integers("lengths", lengths, least=0)
    if len(shape) == 1:
        if sizes.ndim != 1 or sizes.sum() != shape[0]:
            raise ValueError(
                f"`lengths` of shape {sizes.shape} sum to {sizes.sum()}, must be (B,) and sum to {shape[0]}"
            )
        return Rows(np.arange(max(sizes.max(initial=0), 1)) < sizes[:, None], flat=True)
    if sizes.shape != shape[:1] or sizes.max(initial=0) > shape[1]:
        raise ValueError(f"`lengths` is {sizes.tolist()}, must be {shape[0]} numbers of at most {shape[1]}")
    return Rows(np.arange(shape[1]) < sizes[:, None], flat=False)
