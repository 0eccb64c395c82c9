"""Validate arguments of the NumPy baseline: arrays as float64, and numbers within their range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]


def wide(name: str, value: Array, shape: tuple[int, ...] | None = None) -> Array:
    """Return floating-point data, bfloat16 included, as float64."""
    array = np.asarray(value)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise ValueError(f"`{name}` has dtype {array.dtype}, must be a floating-point type")
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{name}` has shape {array.shape}, must be {shape}")
    return array.astype(np.float64)


def narrow(result: Array, like: Array) -> Array:
    """Return float64 results in the dtype of the data, in native byte order, rounded once."""
    with np.errstate(over="ignore", under="ignore"):
        return result.astype(np.asarray(like).dtype.newbyteorder("="))


def vocabulary(name: str, value: Array) -> Array:
    """Return (…, V) data as float64; V is at least 1."""
    array = wide(name, value)
    if not array.ndim or not array.shape[-1]:
        raise ValueError(f"`{name}` has shape {array.shape}, must have a vocabulary axis with at least one token")
    return array


def whole(name: str, value: Array | Sequence[int], least: int, below: int) -> Array:
    """Return integers in [least, below) as int64."""
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"`{name}` has dtype {array.dtype}, must be an integer type")
    outside = (array < least) | (array >= below)
    if np.any(outside):
        index = int(np.flatnonzero(outside)[0])
        raise ValueError(f"`{name}` is {array.flat[index]} at index {index}, must be in [{least}, {below})")
    return array.astype(np.int64)


def one_of(name: str, value: object, choices: Sequence[object]) -> None:
    """Check that a value is one of its choices."""
    if value not in choices:
        raise ValueError(f"`{name}` is {value!r}, must be one of {', '.join(map(repr, choices))}")


def within(name: str, value: float, least: float, most: float = math.inf) -> None:
    """Check that a number is finite and within its range."""
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"`{name}` is {value}, must be a finite number within [{least}, {most}]")
