"""Show a replayed run (`gates trainer replay`), as one screen or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from gates.errors import ExitCode
from gates.replay.limits import because, limit
from gates.replay.measure import Measures
from gates.replay.run import Run
from gates.report.wrap import beside, sentence
from gates.results.escape import one_line

Results = Mapping[str, Measures]
STATUS, NAME = 9, 12  # columns
LINES = 4  # of a sentence at most


def failing(found: Measures) -> list[str]:
    """Return the quantities beyond their limit."""
    return [quantity for quantity, (value, _) in found.worst.items() if not value <= limit(quantity)]


def exit_code(results: Results) -> ExitCode:
    """Return 1 if a stage does not hold, else 0."""
    return ExitCode.FAILED if any(failing(found) for found in results.values()) else ExitCode.HELD


def record(run: Run, results: Results) -> dict[str, Any]:
    """Return the stages as JSON; infinity is text."""
    stages = [
        {
            "stage": name,
            "holds": not failing(found),
            "left_out": found.left_out,
            "quantities": [
                {
                    "quantity": quantity,
                    "value": value if math.isfinite(value) else str(value),
                    "limit": limit(quantity),
                    "because": because(quantity),
                    "where": where,
                }
                for quantity, (value, where) in found.worst.items()
            ],
        }
        for name, found in results.items()
    ]
    run_facts = {"run": str(run.trace.folder), "computed_by": run.base.computed_by}
    return {**run_facts, **_counts(run), "stages": stages, "exit_code": int(exit_code(results))}


def _counts(run: Run) -> dict[str, int]:
    steps = run.trace.steps
    rollouts = [rollout for step in steps for rollout in step.rollouts]
    return {
        "steps": len(steps),
        "updates": sum(len(step.updates) for step in steps),
        "rows": sum(len(rollout.lengths) for rollout in rollouts),
        "tokens": int(sum(rollout.lengths.sum() for rollout in rollouts)),
    }


def lines(run: Run, results: Results, width: int, seconds: float) -> list[Text]:
    """Return the screen: a line for each stage, what does not hold with its numbers, the exit code last."""
    counts = ", ".join(f"{number:,} {name}" for name, number in _counts(run).items())
    how = "" if run.base.computed_by.startswith("NumPy") else f" by {run.base.computed_by}"
    screen = [
        Text(f"{one_line(run.trace.folder.name)} · replayed in float64{how}: {counts} ({seconds:.1f} s)", style="bold")
    ]
    for name, found in results.items():
        wrong = failing(found)
        head = (
            Text("  ")
            .append(f"{'FAILS' if wrong else 'holds':{STATUS}}", "red bold" if wrong else "green")
            .append(f"{name:{NAME}}")
        )
        texts = [_wrong(quantity, found) for quantity in wrong] or [_closest(found)]
        texts += [f"left out: {reason}" for reason in found.left_out]
        column, _ = beside(2 + STATUS + NAME, width, LINES)
        parts = [line for text in texts for line in sentence(text, width - column, LINES)]
        if column < 2 + STATUS + NAME:
            screen.append(head)
        else:
            screen.append(head.append(parts.pop(0)))
        screen += [Text(" " * column + part) for part in parts]
    failed = [name for name, found in results.items() if failing(found)]
    ending = f"exit 1: {', '.join(failed)}" if failed else f"exit 0: all {len(results)} stages hold"
    return [*screen, Text(ending, style="bold")]


def _wrong(quantity: str, found: Measures) -> str:
    value, where = found.worst[quantity]
    return one_line(f"{quantity} is {value:.3g}, must be <= {limit(quantity):g} ({where})")


def _closest(found: Measures) -> str:
    """Return the quantity that comes nearest to its limit, and the number of those that are exact."""
    near = {q: (value, limit(q)) for q, (value, _) in found.worst.items() if limit(q)}
    exact = len(found.worst) - len(near)
    parts = [f"{exact} exact"] if exact else []
    if near:
        quantity = max(near, key=lambda q: near[q][0] / near[q][1])
        value, most = near[quantity]
        parts.append(f"{quantity} is {value:.1g} at most, may be {most:g}")
    return "; ".join(parts)
