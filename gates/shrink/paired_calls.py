"""Shrink two calls together: an index removed from one call is removed from the other.

Some gates compare two calls, `left` and `right` or `before` and `after`: the same rows in another order, repeated, or with
wider padding. Two indexes are partners if they hold the same numbers in any order, or else if they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array
from gates.shrink.flatten import DOT, last

Side = dict[str, Array]
AXES = (0, 1)


def both(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Remove rows and columns of two calls together, halves first, and renumber indexes from one into the other."""
    sides: dict[str, Side] = {}
    for path, value in inputs.items():
        folder = last(path.rpartition(DOT)[0])
        if folder and isinstance(value, np.ndarray) and value.ndim:
            sides.setdefault(folder, {})[path] = value
    if len(sides) != 2:
        return
    first, second = sides.values()
    for axis in AXES:
        sizes = _size(first, axis), _size(second, axis)
        if min(sizes) < 2:
            continue
        for partners in _links(first, second, axis, sizes):
            block = sizes[0] // 2
            while block:
                for start in range(0, sizes[0], block):
                    gone = np.zeros(sizes[0], bool)
                    gone[start : start + block] = True
                    removed = np.where(partners < 0, False, gone[partners])
                    if not gone.all() and not removed.all():
                        yield {**inputs, **_cut(inputs, (first, second), axis, (gone, removed))}
                block //= 2


def _size(side: Side, axis: int) -> int:
    """Return the length of an axis in the array with the most axes, 0 if it lacks the axis."""
    widest = max(side.values(), key=lambda array: array.ndim)
    return int(widest.shape[axis]) if widest.ndim > axis else 0


def _links(first: Side, second: Side, axis: int, sizes: tuple[int, int]) -> Iterator[Array]:
    """Yield the partner in the first call of each index of the second, −1 for none."""
    contents = [_contents(side, axis, size) for side, size in zip((first, second), sizes, strict=True)]
    known = {numbers: index for index, numbers in enumerate(contents[0])}
    by_numbers = np.array([known.get(numbers, -1) for numbers in contents[1]])
    by_index = np.where(np.arange(sizes[1]) < sizes[0], np.arange(sizes[1]), -1)
    if (by_numbers >= 0).any():
        yield by_numbers
    if not np.array_equal(by_numbers, by_index):
        yield by_index


def _contents(side: Side, axis: int, size: int) -> list[bytes]:
    """Return the numbers of each index as bytes, sorted within each array."""
    depth = min(path.count(DOT) for path in side)  # `right.mask`, not `broken.right.mask`
    own = {
        last(path): np.moveaxis(array, axis, 0)
        for path, array in side.items()
        if path.count(DOT) == depth and array.ndim > axis and array.shape[axis] == size
    }
    return [b"".join(np.sort(own[name][index], axis=None).tobytes() for name in sorted(own)) for index in range(size)]


def _cut(inputs: Mapping[str, Any], sides: tuple[Side, Side], axis: int, gone: tuple[Array, Array]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for side, less in zip(sides, gone, strict=True):
        for path, array in side.items():
            if array.ndim > axis and array.shape[axis] == len(less):
                changed[path] = np.compress(~less, array, axis=axis)
    flat = [_flat(side, axis, less) for side, less in zip(sides, gone, strict=True)]
    for path, value in inputs.items():
        if DOT in path or not isinstance(value, np.ndarray) or value.ndim != 1:
            continue
        if value.dtype.kind in "iu" and value.size == len(flat[0]) and value.max() < len(flat[1]):
            position = np.cumsum(~flat[1]) - 1
            changed[path] = np.maximum(position[value[~flat[0]]], 0).astype(value.dtype)
        elif value.size == len(gone[0]) and axis == 0:
            changed[path] = value[~gone[0]]
    return changed


def _flat(side: Side, axis: int, gone: Array) -> Array:
    """Return the removed elements of the array with the most axes, as a flat mask in C order."""
    widest = max(side.values(), key=lambda array: array.ndim)
    shape = [len(gone) if index == axis else 1 for index in range(widest.ndim)]
    return np.broadcast_to(gone.reshape(shape), widest.shape).reshape(-1)
