"""The mistakes that .ci/twin_mistakes.py makes: each is another program, and what only refuses inputs is left alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / ".ci"))

from small_mistakes import mistakes

SOURCE = '''
def mean(values: list, low: float = 0.0) -> float:
    """Return the mean of what is above a bound."""
    if low < 0.0:
        raise ValueError("low is negative")
    kept = np.where(values > low, values, 0.0)
    return -kept.sum(axis=1) / 2 if len(values) else 0.0
'''
NOT_HERE = "low < 0.0"  # the refusal's own condition


def test_every_mistake_is_another_program() -> None:
    """It compiles, differs from the source and from every other one."""
    found = [ast.unparse(mistake.tree) for mistake in mistakes(SOURCE)]
    assert len(found) == len(set(found)) >= 15
    assert ast.unparse(ast.parse(SOURCE)) not in found
    for text in found:
        compile(text, "mistake", "exec")
        assert NOT_HERE in text


def test_they_are_of_each_kind() -> None:
    """Operators, constants, names, arguments and branches; the line and the function are told."""
    told = {mistake.words for mistake in mistakes(SOURCE)}
    assert {
        "GtE for Gt: values > low",
        "sides swapped: np.where(values > low, values, 0.0)",
        "mean: kept.sum",
        "no axis: kept.sum(axis=1)",
        "no sign: -kept.sum(axis=1)",
        "Mult for Div: -kept.sum(axis=1) / 2",
        "3: 2",
        "always: -kept.sum(axis=1) / 2 if len(values) else 0.0",
    } <= told
    assert {(mistake.line, mistake.function) for mistake in mistakes(SOURCE)} == {(6, "mean"), (7, "mean")}
