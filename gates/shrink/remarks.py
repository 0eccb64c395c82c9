"""Remark on the location of a failure: beyond a clip, masked, tied, empty, u near 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

JUST = 1.05  # up to this factor a ratio is called "just" beyond its bound
NEAR_ONE = 1e-3  # a uniform this close to 1 draws one of the last tokens
Index = tuple[int, ...] | None


def remarks(inputs: Mapping[str, Any], index: Index) -> Iterator[str]:
    """Yield remarks on an index; without one, on inputs of a single token or row."""
    yield from _ratio(inputs, index)
    yield from _slots(inputs, index)
    yield from _draws(inputs, index)
    yield from _scores(inputs, index)
    yield from _lengths(inputs)


def _array(inputs: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if isinstance(value := inputs.get(name), np.ndarray) and value.size:
            return value
    return None


def _at(array: Any, index: Index) -> Any:
    """Return an array's element at an index, or its only element; else None."""
    if array is None:
        return None
    position = (0,) * array.ndim if array.size == 1 else (index or ())[: array.ndim]
    inside = len(position) == array.ndim and all(i < n for i, n in zip(position, array.shape, strict=True))
    return array[position] if inside else None


def _ratio(inputs: Mapping[str, Any], index: Index) -> Iterator[str]:
    pair = [_at(_array(inputs, "policy"), index), _at(_array(inputs, "old", "behaviour"), index)]
    if any(x is None for x in pair):
        return
    distance = float(pair[0]) - float(pair[1])
    ratio = math.exp(distance) if abs(distance) < 700 else (math.inf if distance > 0 else 0.0)
    yield f"ratio exp(policy − old) {ratio:.6g}"
    low, high, delta = (inputs.get(name) for name in ("epsilon_low", "epsilon_high", "delta"))
    if isinstance(delta, float) and ratio > delta:
        yield f"{_just(ratio / delta)}above δ = {delta:.6g}"
    elif isinstance(high, float) and ratio > 1.0 + high:
        yield f"{_just(ratio / (1.0 + high))}above 1 + ε_high = {1.0 + high:.6g}"
    elif isinstance(low, float) and 0.0 < low < 1.0 and ratio < 1.0 - low:
        yield f"{_just((1.0 - low) / ratio if ratio else math.inf)}below 1 − ε_low = {1.0 - low:.6g}"


def _just(times: float) -> str:
    return "just " if times <= JUST else ""


def _slots(inputs: Mapping[str, Any], index: Index) -> Iterator[str]:
    mask = _array(inputs, "mask")
    if mask is None or mask.ndim != 2:
        return
    inside = _at(mask, index)
    if inside is not None and not inside:
        yield "a masked slot"
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size and (index is None or index[:1] == (empty[0],) or len(mask) <= 2):
        yield f"completion {empty[0] + 1} is empty"


def _draws(inputs: Mapping[str, Any], index: Index) -> Iterator[str]:
    u = _at(_array(inputs, "uniforms"), index)
    if u is not None and u == 0.0:
        yield "u = 0: the first token that has mass"
    elif u is not None and u >= 1.0 - NEAR_ONE:
        yield f"u just below 1: 1 − u = {1.0 - float(u):.3g}"
    logits = _array(inputs, "logits")
    if logits is None or logits.ndim != 2:
        return
    row = logits[index[0] if index and index[0] < len(logits) else 0]
    tied = int(np.sum(row == row.max()))
    if tied > 1 and (index or len(logits) == 1):
        yield f"tie: {tied} vocabulary ids share the largest logit"


def _scores(inputs: Mapping[str, Any], index: Index) -> Iterator[str]:
    scores = _array(inputs, "scores", "rewards")
    if scores is None or scores.ndim != 1:
        return
    size = inputs.get("group_size")
    size = size if isinstance(size, int) and size > 0 else 2 if inputs.get("scores") is not None else scores.size
    start = (index[0] if index else 0) // size * size
    group = scores[start : start + size]
    if np.isnan(group).any():
        yield "a completion of the group is not scored (NaN)"
    elif group.size > 1 and (group == group[0]).all():
        yield "tie: all scores of the group are equal"
    elif group.size > 1 and np.sum(group == group.max()) > 1:
        yield "tie: several completions have the best score"


def _lengths(inputs: Mapping[str, Any]) -> Iterator[str]:
    lengths, limit = _array(inputs, "lengths"), inputs.get("max_length")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        return
    if isinstance(limit, int) and "strategy" in inputs:
        if (lengths > limit).any():
            yield f"sequence {int(np.argmax(lengths > limit)) + 1} is longer than a bin"
        elif lengths.sum() == limit:
            yield "together they fill a bin exactly"
    if (lengths == 0).any():
        yield f"{'sequence' if 'strategy' in inputs else 'completion'} {int(np.argmax(lengths == 0)) + 1} is empty"
