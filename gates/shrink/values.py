"""Ways to write simpler numbers into arrays of the same shape: everything valid, zeros, round numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.shrink.nesting import last

Inputs = Mapping[str, Any]
EACH = 64  # elements of an array up to which they are tried one by one
WHOLE = 4096  # elements up to which numbers are made simpler at all
DECIMALS = (0, 1, 2, 3)


def simpler(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Write simpler numbers: everything valid, zeros, round numbers; first whole arrays, then element by element."""
    for names in _of_one_name(inputs):
        for changed in zip(*(_plain(inputs[name]) for name in names), strict=True):
            yield {**inputs, **dict(zip(names, changed, strict=True))}
    for names in _alike(inputs):
        value = inputs[names[0]]
        for place in np.ndindex(value.shape):
            for plain in _plain(value[place]):
                array = value.copy()
                array[place] = plain
                yield {**inputs, **dict.fromkeys(names, array)}


def _of_one_name(inputs: Inputs) -> Iterator[list[str]]:
    """Yield arrays that two calls have under one name, then each array alone."""
    arrays = [name for name, v in inputs.items() if isinstance(v, np.ndarray) and 0 < v.size <= WHOLE]
    kinds = {(last(name), inputs[name].dtype.str) for name in arrays}
    for name, dtype in sorted(kinds):
        if len(together := [n for n in arrays if last(n) == name and inputs[n].dtype.str == dtype]) > 1:
            yield together
    yield from ([name] for name in arrays)


def _alike(inputs: Inputs) -> Iterator[list[str]]:
    """Yield arrays that two calls have under one name with the same numbers, then each array alone; small ones only."""
    arrays = {name: v for name, v in inputs.items() if isinstance(v, np.ndarray) and 0 < v.size <= EACH}
    for name, value in arrays.items():
        equal = [n for n, v in arrays.items() if last(n) == last(name) and np.array_equal(v, value)]
        if len(equal) > 1 and equal[0] == name:
            yield equal
    yield from ([name] for name in arrays)


def _plain(value: Any) -> Iterator[Array]:
    array = np.asarray(value)
    if array.dtype.kind == "b":
        yield np.ones_like(array)
        return
    yield np.zeros_like(array)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            yield np.sign(array)
            for decimals in DECIMALS:
                yield np.round(array, decimals)
    elif array.dtype.kind in "iu":
        yield np.minimum(array, 1)
        yield array // 2
