"""Preference pairs of which the rows of one side alone have a closing token."""

from pathlib import Path

import pytest
from recordings import EOS, Line, Made, Model, lines, spread
from scenarios import picture

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 7)
WEIGHT = 0.1


def pairs(*ended: str) -> list[Line]:
    """Four pairs, the row that is pushed up first; rows of these sides have a closing token."""
    rows = lines(LENGTHS, 2, prompts=(3, 5, 4, 6))
    for index, row in enumerate(rows):
        row.seen = False
        if ("down" if index % 2 else "up") not in ended:
            row.completion[-1] = 7
    return rows


def made(rows: list[Line]) -> Made:
    return Made(Model.drawn(), rows, spread(rows, [-WEIGHT, WEIGHT] * (len(rows) // 2)))


@pytest.mark.parametrize(("side", "effect"), [("down", "unlearns to end"), ("up", "learns to end by that alone")])
def test_one_side_alone_has_a_closing_token(side: str, effect: str, tmp_path: Path) -> None:
    reading = picture(tmp_path, made(pairs(side)), sampled=False).of("endings")
    assert reading is not None
    assert reading.kind == "attention"
    assert reading.sentence.startswith(f"only the rows that are pushed {side} have a closing token (4 of 4, ")
    assert reading.sentence.endswith(f"it is only pushed {side}, so the model {effect}")


@pytest.mark.parametrize("ended", [("up", "down"), ()], ids=["both", "none"])
def test_both_sides_are_alike(ended: tuple[str, ...], tmp_path: Path) -> None:
    assert picture(tmp_path, made(pairs(*ended)), sampled=False).of("endings") is None


def test_rows_that_a_limit_cuts_off_are_read(tmp_path: Path) -> None:
    rows = pairs("up")
    longest = max(LENGTHS) + 1
    for row in rows[1::2]:
        row.completion = [*row.completion, *[9] * longest][:longest]
    for row in rows:
        row.padding = longest - row.length
    reading = picture(tmp_path, made(rows), sampled=False).of("endings")
    assert reading is not None
    assert (reading.kind, reading.sentence.endswith("as where a limit cuts them off")) == ("read", True)


def test_one_row_with_a_closing_token_more_is_no_side(tmp_path: Path) -> None:
    rows = pairs("down")
    rows[0].completion[-1] = EOS
    assert picture(tmp_path, made(rows), sampled=False).of("endings") is None


def test_a_policy_gradient_may_have_unlucky_rows(tmp_path: Path) -> None:
    """Rows that were sampled end as they were drawn."""
    rows = pairs("down")
    for row in rows:
        row.seen = True
    assert picture(tmp_path, made(rows)).of("endings") is None
