"""Describe the ops for people, for JSON, and for the file that `gates init` writes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from gates.model import Gate, Op, Output
from gates.report.conventions import explained

WIDTH = 120  # columns of a line
UNDECLARED = "of a convention that is not declared every choice is asked, but those that are asked only of a subject that declares them"
TYPES = {
    "f": "floating point",
    "i": "integers",
    "b": "booleans",
    "scalar": "a number",
    "text": "text",
    "any": "anything",
}


def ops_of(gates: Iterable[Gate]) -> dict[str, Op]:
    """Return every op that a gate calls, by name; of ops that differ in their outputs the first."""
    ops: dict[str, Op] = {}
    for gate in gates:
        for op in gate.ops:
            ops.setdefault(op.name, op)
    return dict(sorted(ops.items()))


def conventions_of(name: str, gates: Iterable[Gate]) -> dict[str, list[Any]]:
    """Return the conventions that cases request of an op; a subject may declare that it has only some."""
    conventions: dict[str, list[Any]] = {}
    for gate in gates:
        if not any(op.name == name for op in gate.ops):
            continue
        for case in gate.cases:
            for key, value in (*case.conventions.items(), *case.declared.items()):
                choices = conventions.setdefault(key, [])
                choices += [
                    choice for choice in (value if isinstance(value, tuple) else (value,)) if choice not in choices
                ]
    return {
        key: sorted(choices, key=lambda x: (x is None, str(type(x)), x)) for key, choices in sorted(conventions.items())
    }


def output_words(output: Output) -> str:
    """Return `of the shape and dtype of rewards`, or `floating point, 2 axes`."""
    if output.like:
        return f"of the shape and dtype of {output.like}"
    axes = "" if output.ndim is None else f", {output.ndim} {'axis' if output.ndim == 1 else 'axes'}"
    return f"{TYPES.get(output.kind, output.kind)}{axes}"


def record(op: Op, gates: Iterable[Gate]) -> dict[str, Any]:
    """Return one op as JSON."""
    callers = [gate for gate in gates if any(other.name == op.name for other in gate.ops)]
    return {
        "op": op.name,
        "formula": op.formula,
        "source": op.source,
        "inputs": dict(op.inputs),
        "optional": sorted(op.optional),
        "outputs": {
            name: {"like": o.like or None, "kind": None if o.like else o.kind, "axes": o.ndim}
            for name, o in op.outputs.items()
        },
        "conventions": (asked := conventions_of(op.name, callers)),
        "conventions_explained": {name: explained(name, op, choices) for name, choices in asked.items()},
        "gates": [gate.id for gate in callers],
    }


def as_text(op: Op, gates: Iterable[Gate]) -> str:
    """Return one op for a terminal."""
    data = record(op, gates)
    lines = [op.name, *(f"  {key}  {data[key]}" for key in ("formula", "source") if data[key]), "  inputs"]
    optional = {name: "optional: " if name in op.optional else "" for name in op.inputs}
    lines += [f"    {name:26} {optional[name]}{words}" for name, words in op.inputs.items()]
    lines += ["  outputs"]
    lines += [f"    {name:26} {output_words(output)}" for name, output in op.outputs.items()]
    if data["conventions"]:
        lines += ["  conventions that cases request", f"    {UNDECLARED}"]
        for key, values in data["conventions"].items():
            lines.append(f"    {key:26} {', '.join(map(repr, values))}")
            lines += textwrap.wrap(
                explained(key, op, values),
                WIDTH,
                initial_indent=" " * 31,
                subsequent_indent=" " * 31,
                break_on_hyphens=False,
            )
    lines += [f"  gates  {', '.join(data['gates'])}"]
    return "\n".join(lines)
