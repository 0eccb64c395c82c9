"""A failure on few numbers, said in words: where it is, what was found, and which inputs stand there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.counterexample.asking import Answer
from gates.model import Op

PLACE = re.compile(r"at \[([\d, ]+)\]: got (\S+), want (\S+)")  # the grammar of gates.compare.worst
AXES = re.compile(r"\(([A-Z](?:, [A-Z])*),?\)")  # how the tables of ops write shapes
NAMES = {"B": "completion", "R": "completion", "T": "token", "N": "token", "V": "vocabulary id", "F": "reward function"}
FEW = 12  # numbers of an array that are shown whole


def describe(answer: Answer, ops: tuple[Op, ...], inputs: Mapping[str, Any]) -> str:
    """Return one sentence about the first claim that fails, or about the exception."""
    if answer.failing is None:
        return f"{answer.reason}; inputs: {_shown(inputs)}"
    found = PLACE.search(answer.failing.where)
    if found is None:
        remark = ""
        if isinstance(policy := inputs.get("policy"), np.ndarray) and policy.size == 1:
            remark = "".join(f"; {text}" for text in _remarks(inputs, (0,) * policy.ndim))
        return f"{answer.failing.sentence()}; inputs: {_shown(inputs)}{remark}"
    place = tuple(int(i) for i in found[1].split(","))
    where = ", ".join(_axis(ops, inputs, place, axis) for axis in range(len(place)))
    numbers = f"got {found[2]}, want {found[3]}"
    there = ", ".join(f"{name} {value}" for name, value in _there(inputs, place))
    remark = "".join(f"; {text}" for text in _remarks(inputs, place))
    return f"{answer.failing.quantity}: {where}: {numbers}{f'; inputs there: {there}' if there else ''}{remark}"


def _axis(ops: tuple[Op, ...], inputs: Mapping[str, Any], place: tuple[int, ...], axis: int) -> str:
    """Return `completion 3 of 4`: the name of an axis is that of an input that has it, with as few axes as may be."""
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    for name, value in sorted(arrays.items(), key=lambda item: item[1].ndim):
        if value.ndim < len(place) or value.shape[axis] <= place[axis]:
            continue
        for op in ops:
            letters = AXES.match(op.inputs.get(name, ""))
            named = letters[1].split(", ") if letters else []
            if len(named) == value.ndim:
                return f"{NAMES.get(named[axis], 'element')} {place[axis] + 1} of {value.shape[axis]}"
        word = "element" if len(place) == 1 else ("row", "column", "layer")[min(axis, 2)]
        return f"{word} {place[axis] + 1} of {value.shape[axis]}"
    return f"element {place[axis] + 1}" if len(place) == 1 else f"axis {axis}, element {place[axis] + 1}"


def _there(inputs: Mapping[str, Any], place: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for name, value in inputs.items():
        if isinstance(value, np.ndarray) and 0 < value.ndim <= len(place):
            here = place[: value.ndim]
            if all(i < n for i, n in zip(here, value.shape, strict=True)):
                yield name, _number(value[here])


def _remarks(inputs: Mapping[str, Any], place: tuple[int, ...]) -> Iterator[str]:
    policy, old = inputs.get("policy"), inputs.get("old")
    pair = [x[place] for x in (policy, old) if isinstance(x, np.ndarray) and x.ndim == len(place)]
    if len(pair) != 2:
        return
    distance = float(pair[0]) - float(pair[1])
    ratio = math.exp(distance) if abs(distance) < 700 else math.inf
    yield f"ratio exp(policy − old) {ratio:.6g}"
    low, high, delta = (inputs.get(name) for name in ("epsilon_low", "epsilon_high", "delta"))
    if isinstance(delta, float) and ratio > delta:
        yield f"above δ = {delta:.6g}"
    elif isinstance(high, float) and ratio > 1.0 + high:
        yield f"above 1 + ε_high = {1.0 + high:.6g}"
    elif isinstance(low, float) and ratio < 1.0 - low:
        yield f"below 1 − ε_low = {1.0 - low:.6g}"


def _shown(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in inputs.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.tolist()}" if value.size <= FEW else f"{value.dtype}{list(value.shape)}"
    return repr(value)


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(value.item())
