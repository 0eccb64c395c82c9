"""Rows that are divided by their lengths twice."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, picture

from gates.model import Array


def divided(rows: Sequence[Line], weights: Array, power: float) -> Array:
    """−A over a power of the length, in the mean over rows."""
    return np.array([-a / line.length**power / len(rows) for a, line in zip(weights, rows, strict=True)])


@pytest.mark.parametrize(
    ("power", "kind", "words"),
    [
        (2.0, "attention", "divided by its length twice"),
        (1.0, "read", "averaged over its tokens first"),
        (1.5, "cannot tell", "in no way"),
    ],
)
def test_a_row_that_is_divided_by_its_length_twice(power: float, kind: str, words: str, tmp_path: Path) -> None:
    rows = lines(LENGTHS, GROUP)
    made = Made(Model.drawn(), rows, spread(rows, divided(rows, advantages(), power)))
    reading = picture(tmp_path, made).of("between rows")
    assert reading is not None
    assert (reading.kind, words in reading.sentence) == (kind, True)


def test_rows_of_one_length_are_divided_by_a_constant(tmp_path: Path) -> None:
    rows = lines((6,) * 8, GROUP)
    made = Made(Model.drawn(), rows, spread(rows, divided(rows, advantages(), 2.0)))
    reading = picture(tmp_path, made).of("between rows")
    assert reading is not None
    assert (reading.kind, "look alike" in reading.sentence) == ("cannot tell", True)
