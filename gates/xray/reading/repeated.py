"""The factors of forward passes of one update that weigh n : n−1 : … : 1, and tokens as they are without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.shapes import Shape
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step]) -> tuple[Tokens, list[Shape], Array] | None:
    """Return tokens as they are without the factors of their passes, the shapes with a KL that fit then, and the factors."""
    for each in factors(step):
        of = each[tokens.row]
        parts = (tokens.row, tokens.position, tokens.column, tokens.value / of, tokens.error / of)
        even = Tokens(*parts)
        shaped = shapes.candidates(step, even, earlier) if len(of) else ()
        if fits := [shape for shape in shaped if shape.form is not None and shape.misfit <= even.quantile]:
            return even, fits, each
    return None


def factors(step: Step) -> Iterator[Array]:
    """Yield the factor of each row where passes count n, n − 1, … times, and where they count 1, 2, … times."""
    calls = [(row.row.rank, row.row.call) for row in step.rows]
    order = {call: sum(other < call for other in set(calls) if other[0] == call[0]) for call in set(calls)}
    ranks = np.array([order[call] for call in calls], dtype=float)
    if len(set(ranks.tolist())) > 1:
        yield ranks.max() + 1.0 - ranks
        yield ranks + 1.0
