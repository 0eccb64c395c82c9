"""Advantages that are laid out in another order than the tokens: those of several rows in turn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines
from scenarios import GROUP, LENGTHS, advantages, by_token, picture

from gates.xray.reading.reading import Reading

Weight = Callable[[list[Line], int, int], float]
VALUES = advantages()
RANDOM = np.random.default_rng(5).normal(size=(8, max(LENGTHS)))


def repeated(rows: list[Line], row: int, token: int) -> float:
    """The advantages of a pass of four rows, repeated as often as it is wide, and cut into rows."""
    width = len(rows[0].ids)
    return float(VALUES[4 * (row // 4) + ((row % 4) * width + len(rows[row].prompt) + token) % 4])


def repeated_in_row_means(rows: list[Line], row: int, token: int) -> float:
    return repeated(rows, row, token) / rows[row].length


def two_kinds(rows: list[Line], row: int, token: int) -> float:
    """A reward for each token: two values, in any order."""
    return float(np.sign(RANDOM[row][token])) * 0.1


def any_weights(rows: list[Line], row: int, token: int) -> float:
    return float(RANDOM[row][token])


def read(folder: Path, weight: Weight) -> Reading:
    rows = lines(LENGTHS, GROUP)
    width = max(len(line.ids) for line in rows)
    for line in rows:
        line.padding += width - len(line.ids)
    coefficients = by_token(rows, lambda row, token: -weight(rows, row, token) / 8)
    reading = picture(folder, Made(Model.drawn(), rows, coefficients, call=GROUP)).of("within rows")
    assert reading is not None
    return reading


@pytest.mark.parametrize("weight", [repeated, repeated_in_row_means])
def test_advantages_of_several_rows_in_turn(weight: Weight, tmp_path: Path) -> None:
    reading = read(tmp_path, weight)
    assert (reading.kind, reading.numbers["weights"], reading.numbers["period"]) == ("attention", "in turn", 4)


@pytest.mark.parametrize("weight", [two_kinds, any_weights])
def test_other_weights_of_tokens_are_not(weight: Weight, tmp_path: Path) -> None:
    assert read(tmp_path, weight).numbers["weights"] == "unlike"
