"""Moves that shrink a gate's inputs: fewer rows and columns, smaller groups, fewer sequences and texts.

Moves are independent of the op, so a candidate may be illegal: the oracle then refuses it, or a trusted subject fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.shrink.flatten import flat, last
from gates.shrink.paired_calls import both
from gates.shrink.simplify import WHOLE, cost, simpler_arrays

Inputs = Mapping[str, Any]
NOWHERE = -1  # the index of no element


def elements(inputs: Inputs) -> int:
    """Return the number of array elements, nested inputs included."""
    return sum(value.size for value in flat(inputs).values() if isinstance(value, np.ndarray))


def items(inputs: Inputs) -> list[list[Any]]:
    """Return the lists of texts."""
    lists = (value for value in flat(inputs).values() if isinstance(value, list))
    return [value for value in lists if value and all(isinstance(text, str) for text in value)]


def measure(inputs: Inputs) -> tuple[int, int]:
    """Return the size by which candidates are compared: elements, then the digits to write them."""
    digits = sum(_digits(v) for v in inputs.values() if isinstance(v, np.ndarray) and v.size <= WHOLE)
    lists = sum(len(v) for v in inputs.values() if isinstance(v, list))
    return elements(inputs) + lists, digits + sum(cost(name, value) for name, value in inputs.items())


def _digits(array: Array) -> int:
    if array.dtype.kind == "b":
        return int(np.sum(~array))
    return sum(0 if x == 0 else len(str(x).removesuffix(".0")) for x in array.reshape(-1))


def shorter(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Remove part of an axis from all arrays that share it: halves first, single indexes last."""
    for group in _axes(inputs):
        size = next(inputs[name].shape[axis] for name, axis in group)
        block = size // 2
        while block:
            for start in range(0, size, block):
                gone = np.zeros(size, bool)
                gone[start : start + block] = True
                if not gone.all():
                    yield from _without(inputs, group, gone)
                # rows of pairs: first the chosen, then the rejected
                if size % 2 == 0 and start + block <= size // 2 and block < size // 2:
                    yield from _without(inputs, group, gone | np.roll(gone, size // 2))
            block //= 2


def _axes(inputs: Inputs) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield groups of axes that may be one: all of one length, all of one length and position, each alone."""
    extents = [
        (value.shape[axis], axis, name)
        for name, value in inputs.items()
        if isinstance(value, np.ndarray)
        for axis in range(value.ndim)
        if value.shape[axis] > 1
    ]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for size in sorted({size for size, _, _ in extents}, reverse=True):
        together = tuple((name, axis) for n, axis, name in extents if n == size)
        positions = sorted({axis for _, axis in together})
        placed = (tuple((n, a) for n, a in together if a == p) for p in positions)
        for group in (together, *placed, *((axis,) for axis in together)):
            distinct = {name for name, _ in group}
            if group not in seen and len(distinct) == len(group):
                seen.add(group)
                yield group


def _without(inputs: Inputs, group: tuple[tuple[str, int], ...], gone: Array) -> Iterator[dict[str, Any]]:
    cut: dict[str, Any] = {name: np.compress(~gone, inputs[name], axis=axis) for name, axis in group}
    if any(axis == 0 for _, axis in group):  # rows of different lengths are lists
        cut |= {name: [v for v, out in zip(rows, gone, strict=True) if not out] for name, rows in _ragged(inputs, gone)}
    yield {**inputs, **cut}
    size, left = len(gone), int((~gone).sum())
    clipped = {
        name: np.minimum(value, left if value.max() == size else left - 1)
        for name, value in {**inputs, **cut}.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and left <= value.max() <= size
    }
    if clipped:  # lengths of shortened sequences
        yield {**inputs, **cut, **clipped}
    for lost in (NOWHERE, None):
        renumbered = {
            name: _renumbered(value, gone, lost)
            for name, value in {**inputs, **cut}.items()
            if _may_point(value, size) and np.any(gone[: int(value.max()) + 1])
        }
        if renumbered:  # ids of a smaller vocabulary, indexes of rows
            yield {**inputs, **cut, **renumbered}
    counted = {name: _counts(inputs[name], gone) for name in inputs if _parts(inputs[name], size)}
    if counted:
        yield {**inputs, **cut, **counted}


def _ragged(inputs: Inputs, gone: Array) -> Iterator[tuple[str, list[Array]]]:
    """Yield the lists that have one array for each row of the shortened axis."""
    for name, value in inputs.items():
        if isinstance(value, list) and len(value) == len(gone) and all(isinstance(row, np.ndarray) for row in value):
            yield name, value


def _may_point(value: Any, size: int) -> bool:
    """Return whether a value may hold indexes into an axis of this size, or NOWHERE."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or not value.size:
        return False
    return int(value.min()) >= NOWHERE and int(value.max()) < size


def _renumbered(value: Array, gone: Array, lost: int | None) -> Array:
    """Renumber indexes after a removal; that of a removed element becomes `lost`, or its neighbour's if None."""
    position = np.minimum(np.cumsum(~gone) - ~gone, int((~gone).sum()) - 1)
    if lost is not None:
        position = np.where(gone, lost, position)
    position = np.append(position, NOWHERE)  # the last element, to which NOWHERE maps
    return position[value.astype(np.int64)].astype(value.dtype)


def _parts(value: Any, size: int) -> bool:
    """Return whether a value holds the lengths of consecutive parts of an axis."""
    whole = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"
    listed = isinstance(value, list) and all(isinstance(n, int) for n in value)
    return (whole or listed) and len(value) > 0 and int(np.sum(value)) == size


def _counts(value: Any, gone: Array) -> Any:
    parts = np.split(~gone, np.cumsum(np.asarray(value, np.int64))[:-1])
    counts = np.array([part.sum() for part in parts], np.int64)
    return counts.astype(value.dtype) if isinstance(value, np.ndarray) else [int(n) for n in counts if n]


def fewer_sequences(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Remove one sequence from flat arrays: its tokens, its length and its other values."""
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


def fewer_texts(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Remove texts from a list, halves first."""
    lists = items(inputs)
    for name, value in inputs.items():
        if not any(value is texts for texts in lists):
            continue
        block = len(value) // 2
        while block:
            for start in range(0, len(value), block):
                yield {**inputs, name: value[:start] + value[start + block :]}
            block //= 2


def smaller_groups(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Remove whole groups, or shrink every group, for each integer that divides the number of rows."""
    rows = {v.shape[0] for v in inputs.values() if isinstance(v, np.ndarray) and v.ndim}
    for name, group in inputs.items():
        if not isinstance(group, int) or isinstance(group, bool) or group < 2:
            continue
        paths = [path for path in inputs if last(path) == last(name) and inputs[path] == group]  # in both calls
        for size in (n for n in rows if n % group == 0):
            for keep, value in _groups(size, group):
                cut = {
                    key: v[keep]
                    for key, v in inputs.items()
                    if isinstance(v, np.ndarray) and v.ndim and v.shape[0] == size
                }
                parts = {key: _counts(v, ~keep) for key, v in inputs.items() if _parts(v, size)}
                yield {**inputs, **cut, **parts, **dict.fromkeys(paths, value)}


def _groups(size: int, group: int) -> Iterator[tuple[Array, int]]:
    """Yield the rows to keep and the new group size: without blocks of groups, then without members of every group."""
    index = np.arange(size)
    block = size // group // 2
    while block:
        for start in range(0, size // group, block):
            if block < size // group:
                yield (index // group < start) | (index // group >= start + block), group
        block //= 2
    for less in range(1, group):
        yield index % group < less, less
    for member in range(group - 1):
        yield index % group != member, group - 1


MOVES: tuple[Callable[[Inputs], Iterator[dict[str, Any]]], ...] = (
    both,
    smaller_groups,  # before `shorter`, whose blocks are rarely whole groups
    shorter,
    fewer_sequences,
    fewer_texts,
    simpler_arrays,
)
