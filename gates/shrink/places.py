"""Name an index in the terms of its op family: completion, token, group, pair, vocabulary id, sequence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.model import Array, Op
from gates.run.compare import worst
from gates.shrink.probe import Answer

AXES = re.compile(r"\(((?:\d?[A-Z]|…)(?:, (?:\d?[A-Z]|…|\d))*),?\)")  # a shape as the op tables write it
NAMES = {"B": "completion", "R": "completion", "2P": "completion", "T": "token", "N": "token", "V": "vocabulary id",
         "L": "token", "F": "reward function", "…": "row", "M": "completion", "H": "earlier token"}  # fmt: skip
OWN = {  # ops in which a letter has another meaning
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
    """Return `completion 3 of 4`; the name comes from the input with the fewest axes that has this one."""
    of = f"{index + 1} of {shape[axis]}"
    arrays = {
        name: value
        for name, value in inputs.items()
        if isinstance(value, np.ndarray) and value.ndim >= len(shape) and value.shape[axis] == shape[axis]
    }
    order = [name for op in ops for name in op.inputs] + list(arrays)  # the most important input comes first
    nearest = sorted(arrays, key=lambda name: (arrays[name].shape[: len(shape)] != shape, order.index(name)))
    for name in sorted(nearest, key=lambda name: arrays[name].ndim):
        value = arrays[name]
        for op in ops:
            letters = AXES.match(op.inputs.get(name, ""))
            written = letters[1].split(", ") if letters else []
            if len(written) == value.ndim:
                return f"{OWN.get((op.name, written[axis])) or NAMES.get(written[axis], 'element')} {of}"
    return f"{'element' if len(shape) == 1 else ('row', 'column', 'layer')[min(axis, 2)]} {of}"


def against_definition(
    answer: Answer, ops: tuple[Op, ...]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], str, Mapping[str, Any]]]:
    """Yield the outputs that differ from their definition by more than rounding: name, index, shape, `got …, want …`, inputs.

    For claims that count or compare a selection, which have no index of their own.
    """
    by_name = {op.name: op for op in ops if op.oracle is not None}
    for call in answer.calls:
        op = by_name.get(call.op)
        if op is None or op.oracle is None or call.outcome.kind != "value":
            continue
        try:
            wanted = op.oracle(**call.inputs)
        except Exception:  # noqa: BLE001, S112  the definition refuses these inputs
            continue
        for index, name in enumerate(op.outputs):
            want = _part(wanted, name, index, len(op.outputs))
            got = call.outcome.value.get(name)
            if want is None or got is None or np.asarray(got).dtype.kind not in "fiub":
                continue
            a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
            if a.shape != b.shape or a.size == 0 or np.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True):
                continue
            worst_index, difference = _worst(a, b)
            yield name, worst_index, a.shape, difference, call.inputs


def _part(wanted: Any, name: str, index: int, count: int) -> Any:
    if hasattr(wanted, name):
        return getattr(wanted, name)
    if isinstance(wanted, tuple):
        return wanted[index] if len(wanted) == count else None
    return wanted if count == 1 and isinstance(wanted, np.ndarray | float | int) else None


def _worst(got: Array, want: Array) -> tuple[tuple[int, ...], str]:
    _, where = worst(got, want)
    match = re.match(r"(?:at \[([\d, ]*)\]: )?(got .*)", where)
    if match is None:
        return (), where
    return tuple(int(i) for i in (match[1] or "").split(",") if i.strip()), match[2]
