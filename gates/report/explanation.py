"""Explain a gate: question, formula, limits with their reasons, mutants, file and line."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from gates.model import GRADE_OF, LEVELS, Bound, Gate, Level
from gates.registry import Registry
from gates.report.ops import output_words

CHECKOUT = Path(__file__).parents[2]
SHOWN = 6  # cases shown by name; the JSON has all
UNIT = "u is the unit roundoff: 2⁻²⁴ of float32, 2⁻⁵³ of float64, 2⁻¹¹ of float16, 2⁻⁸ of bfloat16"


def explanation(gate: Gate, registry: Registry) -> dict[str, Any]:
    """Return everything that a reader needs to check a gate."""
    return {
        "id": gate.id,
        "name": gate.name,
        "question": gate.question,
        "why": gate.why,
        "levels": levels(gate),
        "ops": [
            {
                "name": op.name,
                "formula": op.formula,
                "source": op.source,
                "inputs": dict(op.inputs),
                "outputs": {name: output_words(output) for name, output in op.outputs.items()},
            }
            for op in gate.ops
        ],
        "limits": [
            {
                "quantity": quantity,
                "kind": bound.kind,
                "limit": _limit(bound),
                "because": bound.because,
                "level": bound.level,
            }
            for quantity, bound in gate.bounds.items()
        ],
        "cases": [case.name for case in gate.cases],
        "mutants": [
            {
                "name": m.name,
                "mistake": m.mistake,
                "theme": m.theme,
                "symptom": m.symptom,
                "host": m.host,
                "seam": m.target,
                "seen_in": m.source,
                "arises": m.arises,
            }
            for m in registry.mutants.values()
            if gate.id in m.caught_by
        ],
        "defined_in": defined_in(gate),
    }


def defined_in(gate: Gate) -> str:
    """Return `gates/families/kl/gates.py:83`, where the gate's check begins; a plugin's path is absolute."""
    check: Any = gate.check
    while inner := getattr(check, "func", None) or getattr(check, "__wrapped__", None):  # partial(), wraps()
        check = inner
    code = getattr(check, "__code__", None) or type(check).__call__.__code__
    path = Path(code.co_filename)
    return f"{path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path}:{code.co_firstlineno}"


def levels(gate: Gate) -> dict[Level, list[str]]:
    """Return the levels of a gate's claims, its own first, each with the cases and quantities that have another."""
    by_level: dict[Level, list[str]] = {gate.level: []}
    for case in gate.cases:
        if case.level is not None and case.level != gate.level:
            by_level.setdefault(case.level, []).append(case.name)
    for quantity, bound in gate.bounds.items():
        if bound.level is not None and bound.level != gate.level:
            by_level.setdefault(bound.level, []).append(quantity)
    return by_level


def _limit(bound: Bound) -> str | float:
    return "computed in the run" if callable(bound.limit) else bound.limit


def as_text(item: dict[str, Any]) -> str:
    """Return an explanation as text for a terminal."""
    lines = [item["id"], "", f"Question  {item['question']}", f"Why       {item['why']}"]
    for level, names in item["levels"].items():
        rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        of = f" ({', '.join(names[:SHOWN])}{rest})" if names else ""
        lines.append(f"Level     {level}, fails as {GRADE_OF[level]}: {LEVELS[level]}{of}")
    lines.append("")
    for op in item["ops"]:
        lines += [f"Op        {op['name']}: {op['formula']}" if op["formula"] else f"Op        {op['name']}"]
        lines += [f"          source: {op['source']}"]
        lines += [f"          {name}: {words}" for name, words in op["inputs"].items()]
        lines += [f"          → {name}: {words}" for name, words in op["outputs"].items()]
    lines.append("")
    for limit in item["limits"]:
        lines.append(f"Limit     {limit['quantity']}: {limit['limit']} ({limit['kind']})")
        lines += textwrap.wrap(f"because {limit['because']}", 110, initial_indent=" " * 10, subsequent_indent=" " * 10)
    if any("2u" in limit["quantity"] for limit in item["limits"]):
        lines.append(f"          {UNIT}")
    more = len(item["cases"]) - SHOWN
    lines += [
        "",
        f"Cases     {len(item['cases'])}: {', '.join(item['cases'][:SHOWN])}{f' and {more} more (--json)' if more > 0 else ''}",
    ]
    if item["name"]:
        lines.append(
            f'Deviation DEPARTURES_DOCUMENTED["{item["name"]}"] of a subject names the documentation of a deviation'
        )
    for mutant in item["mutants"]:
        lines.append(
            f"Mutant    {mutant['name']} applied to {mutant['host']}, target {mutant['seam']}: {mutant['mistake']}"
        )
        lines.append(f"          in training: {mutant['symptom']}")
        if mutant["seen_in"]:
            lines.append(f"          reported in: {mutant['seen_in']}")
        if mutant["arises"]:
            lines.append(f"          arises from: {mutant['arises']}")
    return "\n".join([*lines, "", f"defined in {item['defined_in']}"])
