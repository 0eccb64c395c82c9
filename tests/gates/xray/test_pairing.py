"""Preference pairs whose rows have different prompts."""

from pathlib import Path

import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import picture

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 7)
UNLIKE = (0.05, 0.07, 0.04, 0.09)  # the weights of pairs


def pairs() -> list[Line]:
    """Four pairs, the row that is pushed up first; nobody saw where prompts end."""
    rows = lines(LENGTHS, 2, prompts=(3, 5, 4, 6))
    for row in rows:
        row.seen = False
    return rows


def made(rows: list[Line], weights: tuple[float, ...], partners: tuple[int, ...]) -> Made:
    """Rows of which pair k's first has the weight of k, and its second that of the pair which it is compared in."""
    by_row = [sign * value for k in range(4) for sign, value in ((-1, weights[k]), (1, weights[partners[k]]))]
    return Made(Model.drawn(), rows, spread(rows, by_row))


def test_rows_of_different_prompts_are_paired(tmp_path: Path) -> None:
    """The second rows of three pairs are exchanged: each has the weight of another pair."""
    reading = picture(tmp_path, made(pairs(), UNLIKE, (1, 2, 0, 3)), sampled=False).of("pairing")
    assert reading is not None
    assert reading.kind == "attention"
    assert reading.sentence == (
        "3 of 4 pairs have rows of different prompts, by their weights: row 1 is with row 6, and row 2 begins like it; "
        "row 3 is with row 2, and row 4 begins like it; and 1 more"
    )


@pytest.mark.parametrize(
    ("weights", "partners"),
    [(UNLIKE, (0, 1, 2, 3)), ((0.05,) * 4, (1, 2, 0, 3)), ((0.05, 0.05, 0.07, 0.09), (1, 2, 0, 3))],
    ids=["own pairs", "weights that are equal", "two that are equal"],
)
def test_own_pairs_and_equal_weights_tell_nothing(
    weights: tuple[float, ...], partners: tuple[int, ...], tmp_path: Path
) -> None:
    assert picture(tmp_path, made(pairs(), weights, partners), sampled=False).of("pairing") is None


def test_two_pairs_of_a_prompt_are_no_exchange(tmp_path: Path) -> None:
    """A row may share the first token of its answer with the other pair's."""
    rows = pairs()
    for row in rows[2:4]:
        row.prompt = list(rows[0].prompt)
    rows[3].completion[0] = rows[0].completion[0]
    rows[1].completion[0] = rows[2].completion[0]
    assert picture(tmp_path, made(rows, UNLIKE, (0, 1, 2, 3)), sampled=False).of("pairing") is None
