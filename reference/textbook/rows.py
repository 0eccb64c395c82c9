"""Rows of tokens: a (B, T) array with a mask or with the lengths of valid prefixes, or a flat (N,) array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.textbook.number import Bools, Floats, Number, number


def slots(shape: tuple[int, ...], mask: npt.ArrayLike | None, lengths: npt.ArrayLike | None) -> tuple[Bools, Bools]:
    """Return which slots of a (B, T) grid hold a token, and which of its slots the array that came has, in order.

    Args:
        shape: (B, T), or (N,) with `lengths`.
        mask: (B, T), or None.
        lengths: (B,), or None.
    """
    if len(shape) == 1:
        counts = np.asarray([shape[0]] if lengths is None else lengths)
        valid = np.arange(max(1, int(counts.max()))) < counts[:, None]
        return valid, valid
    if lengths is not None:
        mask = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    return np.ones(shape, bool) if mask is None else np.asarray(mask, bool), np.ones(shape, bool)


def grid(values: npt.ArrayLike, valid: Bools, place: Bools) -> Number:
    """Return (B, T) numbers, an exact 0 where no token stands."""
    array = np.asarray(values)
    wide = np.zeros(valid.shape, array.dtype.newbyteorder("="))
    wide[place] = array.reshape(-1)
    return number(np.where(valid, wide, 0.0).astype(wide.dtype))


def back(limits: Floats, place: Bools, shape: tuple[int, ...]) -> Floats:
    """Return the limits of (B, T) in the shape that came."""
    return limits[place].reshape(shape)
