"""Name an index in the terms of its op family: completion, token, group, pair, vocabulary id, sequence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array, Op
from gates.run.compare import worst
from gates.shrink.probe import Answer

AXES = re.compile(r"\(((?:\d?[A-Z]|…)(?:, (?:\d?[A-Z]|…|\d))*),?\)")  # a shape as in the op tables
NAMES = {"B": "completion", "R": "completion", "2P": "completion", "T": "token", "N": "token", "V": "vocabulary id",
         "L": "token", "F": "reward function", "…": "row", "M": "completion", "H": "earlier token"}  # fmt: skip
OVERRIDES = {  # letters with another meaning in some ops
    ("pack_sequences", "N"): "sequence",
    ("filtered_logprobs", "B"): "row",
    ("sample_tokens", "B"): "row",
    ("prefer", "2P"): "completion",
}


def named(ops: tuple[Op, ...], inputs: Mapping[str, Any], index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Return `group 1 of 2, completion 3 of 4, token 7 of 9` for an index of an output."""
    parts = [_axis(ops, inputs, shape, axis, index[axis]) for axis in range(len(index))]
    size, rows = inputs.get("group_size"), _rows(inputs)
    if index and isinstance(size, int) and 0 < size < rows and parts[0].startswith("completion"):
        parts.insert(0, f"group {index[0] // size + 1} of {-(-rows // size)}")
    if index and any("2P" in text for op in ops for text in op.inputs.values()):
        parts[0] += f" ({'rejected' if index[0] % 2 else 'chosen'} of pair {index[0] // 2 + 1})"
    return ", ".join(parts)


def _rows(inputs: Mapping[str, Any]) -> int:
    return max((len(v) for v in inputs.values() if isinstance(v, np.ndarray) and v.ndim), default=0)


def _axis(ops: tuple[Op, ...], inputs: Mapping[str, Any], shape: tuple[int, ...], axis: int, index: int) -> str:
    """Return `completion 3 of 4`; the name is that of the axis in the input with the fewest axes."""
    count = f"{index + 1} of {shape[axis]}"
    arrays = {
        name: value
        for name, value in inputs.items()
        if isinstance(value, np.ndarray) and value.ndim >= len(shape) and value.shape[axis] == shape[axis]
    }
    order = [name for op in ops for name in op.inputs] + list(arrays)  # ops list their most important input first
    nearest = sorted(arrays, key=lambda name: (arrays[name].shape[: len(shape)] != shape, order.index(name)))
    for name in sorted(nearest, key=lambda name: arrays[name].ndim):
        value = arrays[name]
        for op in ops:
            match = AXES.match(op.inputs.get(name, ""))
            letters = match[1].split(", ") if match else []
            if len(letters) == value.ndim:
                return f"{OVERRIDES.get((op.name, letters[axis])) or NAMES.get(letters[axis], 'element')} {count}"
    return f"{'element' if len(shape) == 1 else ('row', 'column', 'layer')[min(axis, 2)]} {count}"


def against_definition(
    answer: Answer, ops: tuple[Op, ...]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], str, Mapping[str, Any]]]:
    """Yield name, index, shape, `got …, want …` and inputs of each output that is off its definition beyond rounding.

    For claims without an index, such as counts and selections.
    """
    by_name = {op.name: op for op in ops if op.oracle is not None}
    for call in answer.calls:
        op = by_name.get(call.op)
        if op is None or op.oracle is None or call.outcome.kind != "value":
            continue
        try:
            expected = op.oracle(**call.inputs)
        except Exception:  # noqa: BLE001, S112  the definition refuses these inputs
            continue
        for index, name in enumerate(op.outputs):
            want = _part(expected, name, index, len(op.outputs))
            got = call.outcome.value.get(name)
            if want is None or got is None or np.asarray(got).dtype.kind not in "fiub":
                continue
            a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
            if a.shape != b.shape or a.size == 0 or np.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True):
                continue
            worst_index, difference = _worst(a, b)
            yield name, worst_index, a.shape, difference, call.inputs


def _part(expected: Any, name: str, index: int, count: int) -> Any:
    if hasattr(expected, name):
        return getattr(expected, name)
    if isinstance(expected, tuple):
        return expected[index] if len(expected) == count else None
    return expected if count == 1 and isinstance(expected, np.ndarray | float | int) else None


def _worst(got: Array, want: Array) -> tuple[tuple[int, ...], str]:
    _, where = worst(got, want)
    match = re.match(r"(?:at \[([\d, ]*)\]: )?(got .*)", where)
    if match is None:
        return (), where
    return tuple(int(i) for i in (match[1] or "").split(",") if i.strip()), match[2]
