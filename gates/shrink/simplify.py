"""Moves that simplify the numbers of an input: zeros and round numbers in arrays, defaults and fewer digits elsewhere.

A scalar at its default costs nothing, so a shrunk input keeps only the settings that the failure needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.shrink.flatten import last

Inputs = Mapping[str, Any]
EACH = 64  # largest array whose elements are simplified one by one
WHOLE = 4096  # largest array that is simplified at all
DECIMALS = (0, 1, 2, 3)
DEFAULTS: dict[str, float] = {  # usual defaults, or values that switch a part off
    "beta": 0.0,
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "label_smoothing": 0.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
}
SEEDS = ("seed",)  # integers that only become smaller
TRIES = 16  # seeds tried, from 0: if one in ten fails, the probability to meet one is 0.8
SIGNIFICANT = (1, 2, 3)
SMALL = 16  # up to this size a smaller integer is simpler


def simpler_arrays(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Yield simpler arrays: true masks, zeros, round numbers; whole arrays first, then single elements."""
    for names in _of_one_name(inputs):
        for changed in zip(*(_simpler_arrays(inputs[name]) for name in names), strict=True):
            yield {**inputs, **dict(zip(names, changed, strict=True))}
    for names in _alike(inputs):
        value = inputs[names[0]]
        for index in np.ndindex(value.shape):
            for plain in _simpler_arrays(value[index]):
                array = value.copy()
                array[index] = plain
                yield {**inputs, **dict.fromkeys(names, array)}


def _of_one_name(inputs: Inputs) -> Iterator[list[str]]:
    """Yield arrays with the same name in two calls, then each array alone."""
    arrays = [name for name, v in inputs.items() if isinstance(v, np.ndarray) and 0 < v.size <= WHOLE]
    names = {(last(name), inputs[name].dtype.str) for name in arrays}
    for name, dtype in sorted(names):
        if len(together := [n for n in arrays if last(n) == name and inputs[n].dtype.str == dtype]) > 1:
            yield together
    yield from ([name] for name in arrays)


def _alike(inputs: Inputs) -> Iterator[list[str]]:
    """Yield equal arrays with the same name in two calls, then each array alone; small arrays only."""
    arrays = {name: v for name, v in inputs.items() if isinstance(v, np.ndarray) and 0 < v.size <= EACH}
    for name, value in arrays.items():
        equal = [n for n, v in arrays.items() if last(n) == last(name) and np.array_equal(v, value)]
        if len(equal) > 1 and equal[0] == name:
            yield equal
    yield from ([name] for name in arrays)


def _simpler_arrays(value: Any) -> Iterator[Array]:
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


def cost(path: str, value: Any) -> int:
    """Return the cost of a scalar in the size of an input: 0 at its default, else 1 plus its size or digits."""
    name = last(path)
    if isinstance(value, str):
        return len(value) if name == "style" else 0  # `plain` prompts are shorter than `worded` ones
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if name in SEEDS:
        return int(value).bit_length()  # drawn seeds are larger than all seeds tried
    if value == DEFAULTS.get(name):
        return 0
    if isinstance(value, int):
        return 1 + (abs(value) if abs(value) <= SMALL else SMALL + value.bit_length())
    return 1 + (0 if value == 0 else len(str(value).removesuffix(".0")))


def simpler_scalars(inputs: Mapping[str, Any], settled: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield simpler scalars, first all at their defaults; `settled` scalars keep their values."""
    free = {
        path: value
        for path, value in inputs.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and last(path) not in settled
    }
    plain = {path: type(value)(DEFAULTS[last(path)]) for path, value in free.items() if last(path) in DEFAULTS}
    yield {**inputs, **plain}
    for path, value in free.items():
        names = [name for name in free if last(name) == last(path) and free[name] == value]  # in both calls
        for candidate in _simpler_scalar(last(path), value):
            if candidate != value:
                if len(names) > 1:
                    yield {**inputs, **dict.fromkeys(names, candidate)}
                yield {**inputs, path: candidate}


def _simpler_scalar(name: str, value: float) -> Iterator[float]:
    if name in SEEDS:
        yield from range(min(TRIES, int(value)))
        return
    if name in DEFAULTS:
        yield type(value)(DEFAULTS[name])
    yield type(value)(0)
    yield type(value)(1)
    if isinstance(value, int):
        yield value // 2
        yield value - 1
    elif math.isfinite(value):
        for digits in SIGNIFICANT:
            yield float(f"{value:.{digits}g}")
    else:
        yield math.copysign(1.0, value)


def omit_optional(inputs: Mapping[str, Any], optional: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield inputs with one optional input set to None, arrays first because they are larger."""
    paths = [path for path, value in inputs.items() if value is not None and last(path) in optional]
    for path in sorted(paths, key=lambda path: not isinstance(inputs[path], np.ndarray)):
        yield {**inputs, path: None}
