"""What the table of ops says of each: for people, for JSON, and for the file that `gates init` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gates.model import Gate, Op, Output

KINDS = {
    "f": "floating point",
    "i": "integers",
    "b": "booleans",
    "scalar": "a number",
    "text": "text",
    "any": "anything",
}
#: What conventions mean that are no input of their op, or have other values than the input of that name.
CONVENTIONS = {
    "dtype": "of the arrays that come in",
    "arithmetic": 'what it computes in, whatever the dtype; ("float32",) is not asked for more',
    "rows": "by a mask, by lengths, flat with lengths, or all slots count",
    "weights": "without off-policy weights, with them",
    "ties": "which of equal ones is first",
}


def ops_of(gates: Iterable[Gate]) -> dict[str, Op]:
    """Return every op that some gate asks for, by name; gates may ask one op for more outputs, and the first counts."""
    found: dict[str, Op] = {}
    for gate in gates:
        for op in gate.ops:
            found.setdefault(op.name, op)
    return dict(sorted(found.items()))


def conventions_of(name: str, gates: Iterable[Gate]) -> dict[str, list[Any]]:
    """Return the choices that the cases of the gates ask an op for; a subject may declare that it has only some."""
    found: dict[str, list[Any]] = {}
    for gate in gates:
        if not any(op.name == name for op in gate.ops):
            continue
        for case in gate.cases:
            for key, value in case.conventions.items():
                choices = found.setdefault(key, [])
                if value not in choices:
                    choices.append(value)
    return {key: sorted(choices, key=lambda x: (x is None, str(type(x)), x)) for key, choices in sorted(found.items())}


def convention_words(name: str) -> str:
    """Return `  # of the arrays that come in`, or nothing where the input of that name says it."""
    return f"  # {CONVENTIONS[name]}" if name in CONVENTIONS else ""


def output_words(output: Output) -> str:
    """Return `of the shape and dtype of rewards`, or `floating point, 2 axes`."""
    if output.like:
        return f"of the shape and dtype of {output.like}"
    axes = "" if output.ndim is None else f", {output.ndim} {'axis' if output.ndim == 1 else 'axes'}"
    return f"{KINDS.get(output.kind, output.kind)}{axes}"


def record(op: Op, gates: Iterable[Gate]) -> dict[str, Any]:
    """Return one op as JSON."""
    asking = [gate for gate in gates if any(other.name == op.name for other in gate.ops)]
    return {
        "op": op.name,
        "formula": op.formula,
        "source": op.source,
        "inputs": dict(op.inputs),
        "outputs": {
            name: {"like": o.like or None, "kind": None if o.like else o.kind, "axes": o.ndim}
            for name, o in op.outputs.items()
        },
        "conventions": conventions_of(op.name, asking),
        "gates": [gate.id for gate in asking],
    }


def as_text(op: Op, gates: Iterable[Gate]) -> str:
    """Return one op for a terminal."""
    data = record(op, gates)
    lines = [op.name, *(f"  {key}  {data[key]}" for key in ("formula", "source") if data[key]), "  inputs"]
    lines += [f"    {name:26} {words}" for name, words in op.inputs.items()]
    lines += ["  outputs"]
    lines += [f"    {name:26} {output_words(output)}" for name, output in op.outputs.items()]
    if data["conventions"]:
        lines += ["  conventions that cases ask for"]
        for key, values in data["conventions"].items():
            lines.append(f"    {key:26} {', '.join(map(repr, values))}{convention_words(key)}")
    lines += [f"  gates  {', '.join(data['gates'])}"]
    return "\n".join(lines)
