"""Ways to make a gate's inputs smaller: fewer rows and columns, smaller groups, fewer sequences, simpler numbers.

A move yields candidates and knows nothing of the op. What a candidate means is for the gate to say: the oracle refuses
what is no legal input, and a subject known to be right must hold on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array

Inputs = Mapping[str, Any]
EACH = 64  # elements of an array up to which they are tried one by one
WHOLE = 4096  # elements up to which numbers are made simpler at all
DECIMALS = (0, 1, 2, 3)


def elements(inputs: Inputs) -> int:
    """Return how many numbers the arrays hold."""
    return sum(value.size for value in inputs.values() if isinstance(value, np.ndarray))


def measure(inputs: Inputs) -> tuple[int, int]:
    """Return the size by which a candidate must be smaller: elements first, then what their digits take to write."""
    digits = sum(_digits(v) for v in inputs.values() if isinstance(v, np.ndarray) and v.size <= WHOLE)
    lists = sum(len(v) for v in inputs.values() if isinstance(v, list))
    return elements(inputs) + lists, digits


def _digits(array: Array) -> int:
    if array.dtype.kind == "b":
        return int(np.sum(~array))
    return sum(0 if x == 0 else len(str(x).removesuffix(".0")) for x in array.reshape(-1))


def shorter(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Leave out a part of an axis, everywhere that axis is: halves first, single indexes last."""
    for group in _axes(inputs):
        size = next(inputs[name].shape[axis] for name, axis in group)
        block = size // 2
        while block:
            for start in range(0, size, block):
                gone = np.zeros(size, bool)
                gone[start : start + block] = True
                if not gone.all():
                    yield from _without(inputs, group, gone)
                if (
                    size % 2 == 0 and start + block <= size // 2 and block < size // 2
                ):  # pairs: chosen rows, then rejected
                    yield from _without(inputs, group, gone | np.roll(gone, size // 2))
            block //= 2


def _axes(inputs: Inputs) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield axes that may be one: those of one length, and those of one length at one position."""
    found = [
        (value.shape[axis], axis, name)
        for name, value in inputs.items()
        if isinstance(value, np.ndarray)
        for axis in range(value.ndim)
        if value.shape[axis] > 1
    ]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for size in sorted({size for size, _, _ in found}, reverse=True):
        together = tuple((name, axis) for n, axis, name in found if n == size)
        positions = sorted({axis for _, axis in together})
        for group in (together, *(tuple((n, a) for n, a in together if a == p) for p in positions)):
            distinct = {name for name, _ in group}
            if group not in seen and len(distinct) == len(group):
                seen.add(group)
                yield group


def _without(inputs: Inputs, group: tuple[tuple[str, int], ...], gone: Array) -> Iterator[dict[str, Any]]:
    cut = {name: np.compress(~gone, inputs[name], axis=axis) for name, axis in group}
    yield {**inputs, **cut}
    size, left = len(gone), int((~gone).sum())
    clipped = {
        name: np.minimum(value, left if value.max() == size else left - 1)
        for name, value in {**inputs, **cut}.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and left <= value.max() <= size
    }
    if clipped:  # lengths of what is now shorter, ids of a smaller vocabulary
        yield {**inputs, **cut, **clipped}
    counted = {name: _counts(inputs[name], gone) for name in inputs if _parts(inputs[name], size)}
    if counted:
        yield {**inputs, **cut, **counted}


def _parts(value: Any, size: int) -> bool:
    """Whether a value says into which consecutive parts an axis falls."""
    whole = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"
    listed = isinstance(value, list) and all(isinstance(n, int) for n in value)
    return (whole or listed) and len(value) > 0 and int(np.sum(value)) == size


def _counts(value: Any, gone: Array) -> Any:
    parts = np.split(~gone, np.cumsum(np.asarray(value, np.int64))[:-1])
    counts = np.array([part.sum() for part in parts], np.int64)
    return counts.astype(value.dtype) if isinstance(value, np.ndarray) else [int(n) for n in counts if n]


def fewer_sequences(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Leave out a sequence of flat arrays: its tokens, its length, and what belongs to it."""
    sizes = {v.shape[0] for v in inputs.values() if isinstance(v, np.ndarray) and v.ndim}
    for lengths in inputs.values():
        if not isinstance(lengths, np.ndarray) or len(sizes) < 2 or lengths.ndim != 1 or len(lengths) < 2:
            continue
        for size in sizes - {len(lengths)}:
            if not _parts(lengths, size):
                continue
            owner = np.repeat(np.arange(len(lengths)), lengths)
            for index in range(len(lengths)):
                keep = {size: owner != index, len(lengths): np.arange(len(lengths)) != index}
                yield {
                    key: v[keep[v.shape[0]]] if isinstance(v, np.ndarray) and v.ndim and v.shape[0] in keep else v
                    for key, v in inputs.items()
                }


def smaller_groups(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Leave out whole groups, and make every group smaller, where an integer divides the number of rows."""
    rows = {v.shape[0] for v in inputs.values() if isinstance(v, np.ndarray) and v.ndim}
    for name, group in inputs.items():
        if not isinstance(group, int) or isinstance(group, bool) or group < 2:
            continue
        for size in (n for n in rows if n % group == 0):
            index = np.arange(size)
            keeps = [(index // group != k, group) for k in range(size // group)] if size > group else []
            keeps += [(index % group < less, less) for less in range(1, group)]
            keeps += [(index % group != k, group - 1) for k in range(group - 1)]
            for keep, value in keeps:
                cut = {
                    key: v[keep]
                    for key, v in inputs.items()
                    if isinstance(v, np.ndarray) and v.ndim and v.shape[0] == size
                }
                parts = {key: _counts(v, ~keep) for key, v in inputs.items() if _parts(v, size)}
                yield {**inputs, **cut, **parts, name: value}


def simpler(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Write simpler numbers: everything valid, zeros, round numbers; first whole arrays, then element by element."""
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and 0 < value.size <= WHOLE:
            for plain in _plain(value):
                yield {**inputs, name: plain}
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and 0 < value.size <= EACH:
            for place in np.ndindex(value.shape):
                for plain in _plain(value[place]):
                    changed = value.copy()
                    changed[place] = plain
                    yield {**inputs, name: changed}


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


MOVES: tuple[Callable[[Inputs], Iterator[dict[str, Any]]], ...] = (
    shorter,
    fewer_sequences,
    smaller_groups,
    simpler,
)
