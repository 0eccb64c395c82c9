"""Inputs as the formulas expect them, or a ValueError that says what was expected and what was found."""

import math
from collections.abc import Collection
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")


def floats(name: str, value: npt.ArrayLike, *, ndim: int | None = None, shape: tuple[int, ...] | None = None) -> Floats:
    """Return the value as a new float64 array; the step from float16, float32 or an integer below 2**53 is exact."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise ValueError(f"`{name}` has dtype {array.dtype}, must be an integer or a float of at most 64 bits")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"`{name}` has shape {array.shape}, must have {ndim} axes")
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{name}` has shape {array.shape}, must be {shape}")
    return array.astype(np.float64)


def integers(name: str, value: npt.ArrayLike, *, least: int, below: int | None = None) -> Ints:
    """Return the value as an int64 array whose elements are at least `least` and less than `below`."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"`{name}` has dtype {array.dtype}, must be an integer type")
    wrong = array < least
    if below is not None:
        wrong = wrong | (array >= below)
    if np.any(wrong):
        where = tuple(int(axis) for axis in np.argwhere(wrong)[0])
        limit = f"at least {least}" if below is None else f"in [{least}, {below})"
        raise ValueError(f"`{name}` is {array[where]}, must be {limit} (at index {where})")
    return array.astype(np.int64)


def mask_of(mask: npt.ArrayLike, shape: tuple[int, ...]) -> Bools:
    """Return the mask as booleans of the wanted shape; only 0, 1, False and True are masks."""
    array = np.asarray(mask)
    if array.shape != shape:
        raise ValueError(f"`mask` has shape {array.shape}, must be {shape}")
    if not np.all((array == 0) | (array == 1)):
        raise ValueError(f"`mask` holds {array[(array != 0) & (array != 1)][0]}, must be 0 or 1 everywhere")
    return array.astype(np.bool_)


def finite(name: str, array: Floats) -> Floats:
    """Return the array, which holds neither NaN nor an infinity."""
    wrong = np.argwhere(~np.isfinite(array))
    if wrong.size:
        where = tuple(int(axis) for axis in wrong[0])
        raise ValueError(f"`{name}` is {array[where]}, must be finite (at index {where})")
    return array


def choice(name: str, value: T, allowed: Collection[object]) -> T:
    """Return the value, which is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"`{name}` is {value!r}, must be one of {', '.join(map(repr, allowed))}")
    return value


def number(name: str, value: float | None, *, least: float, most: float = math.inf) -> float:
    """Return the value, a finite number within [least, most]."""
    if value is None or not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"`{name}` is {value}, must be a finite number within [{least}, {most}]")
    return float(value)


def positive(name: str, value: float | None) -> float:
    """Return the value, a finite number above 0."""
    if value is None or not (math.isfinite(value) and value > 0):
        raise ValueError(f"`{name}` is {value}, must be a finite number above 0")
    return float(value)
