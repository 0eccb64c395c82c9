"""The mutations of tools/mutate_numpy_baseline.py: each differs, and code that only refuses inputs is not mutated."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from small_mutations import mutations

SOURCE = '''
def mean(values: list, low: float = 0.0) -> float:
    """Return the mean of what is above a bound."""
    if low < 0.0:
        raise ValueError("low is negative")
    kept = np.where(values > low, values, 0.0)
    rest = kept[1:, ::2] if low >= 0.0 and kept.size else [x for x in kept if x]
    return -kept.sum(axis=1) / 2 if len(values) else 0.0, np.abs(rest)
'''
NOT_HERE = "low < 0.0"  # the refusal's own condition


def test_every_mutation_is_another_program() -> None:
    """It compiles and differs from the source and the other mutations."""
    programs = [ast.unparse(mutation.tree) for mutation in mutations(SOURCE)]
    assert len(programs) == len(set(programs)) >= 15
    assert ast.unparse(ast.parse(SOURCE)) not in programs
    for text in programs:
        compile(text, "mutation", "exec")
        assert NOT_HERE in text


def test_every_kind_of_mutation_occurs() -> None:
    """Operators, constants, names, arguments, calls, slices, terms and branches, with line and function."""
    descriptions = {mutation.words for mutation in mutations(SOURCE)}
    assert {
        "GtE for Gt: values > low",
        "argument 2 only: np.where(values > low, values, 0.0)",
        "mean: kept.sum",
        "no axis: kept.sum(axis=1)",
        "no sign: -kept.sum(axis=1)",
        "Mult for Div: -kept.sum(axis=1) / 2",
        "3: 2",
        "always: -kept.sum(axis=1) / 2 if len(values) else 0.0",
        "negated: -kept.sum(axis=1) / 2 if len(values) else 0.0",
        "sides swapped: -kept.sum(axis=1) / 2",
        "arguments swapped: np.where(values > low, values, 0.0)",
        "not called: np.abs(rest)",
        "not called: kept.sum(axis=1)",
        "no lower bound: 1:",
        "no step bound: ::2",
        "without term 1: low >= 0.0 and kept.size",
        "no condition: for x in kept if x",
        "results swapped: return (-kept.sum(axis=1) / 2 if len(values) else 0.0, np.abs(rest))",
    } <= descriptions
    assert {(mutation.line, mutation.function) for mutation in mutations(SOURCE)} == {
        (line, "mean") for line in (6, 7, 8)
    }
