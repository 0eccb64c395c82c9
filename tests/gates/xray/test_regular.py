"""Tokens that do not train at the borders of steps in which rows are scored."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines
from scenarios import advantages, picture, row_mean

LENGTHS = (14, 12, 16, 13, 11, 15, 13, 12)
STEP = 5


def made(left_out: Callable[[Line, int], bool]) -> Made:
    """Rows whose tokens train but for those that are left out, by the number of the token in its row."""
    rows = lines(LENGTHS)
    weights = row_mean(rows, advantages())
    coefficients = []
    for line, weight in zip(rows, weights, strict=True):
        places = np.arange(len(line.ids))
        inside = (places >= len(line.prompt)) & (places < len(line.prompt) + line.length)
        coefficients.append(
            np.array([weight if on and not left_out(line, int(k)) else 0.0 for k, on in enumerate(inside)])
        )
    return Made(Model.drawn(), rows, coefficients, bins=2048)


def test_every_fifth_token_does_not_train(tmp_path: Path) -> None:
    reading = picture(tmp_path, made(lambda _, k: k % STEP == 0)).of("regular places")
    assert reading is not None
    assert (reading.kind, reading.numbers["step"]) == ("attention", STEP)
    assert "one in 5: at 6, 11 and 16 of rows, as where rows are scored in steps of 5" in reading.sentence


def test_places_are_counted_from_the_completion(tmp_path: Path) -> None:
    reading = picture(tmp_path, made(lambda line, k: (k - len(line.prompt)) % 4 == 3)).of("regular places")
    assert reading is not None
    assert "one in 4: at 4, 8 and 12 of completions" in reading.sentence


@pytest.mark.parametrize(
    "left_out",
    [
        lambda _, k: False,
        lambda line, k: k == len(line.prompt) + 3,
        lambda line, k: k % STEP == 0 and line.length != LENGTHS[0],
        lambda _, k: k in {7, 9, 14},
    ],
    ids=["none", "one place", "not in one row", "irregular"],
)
def test_other_places_are_not_regular(left_out: Callable[[Line, int], bool], tmp_path: Path) -> None:
    assert picture(tmp_path, made(left_out)).of("regular places") is None
