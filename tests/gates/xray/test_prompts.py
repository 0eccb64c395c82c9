"""Prompts with unequal numbers of rows, and rows that are scored and never train."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Model, lines
from scenarios import picture, second

from gates.xray.picture import Picture
from gates.xray.recorder.gates_xray_lines import Lines

LENGTHS = (4, 3, 5, 3, 4, 3, 4, 5, 3, 4, 3, 5)
WEIGHTS = np.array([0.5, -1.0, 0.7, -0.2, 1.2, -0.4, -0.9, 0.1, -0.6, 0.8, 0.3, -0.5])


def shown(folder: Path, kept: Sequence[int], scored: int, *, others: Sequence[int] = ()) -> Picture:
    """Two updates of some of the twelve rows of three prompts; `others` train in the second one, in their place."""
    rows = lines(LENGTHS, 4, prompts=(5, 4, 6))
    (start, _), (_, last) = (second([rows[k] for k in each], WEIGHTS[list(each)]) for each in (kept, others or kept))
    for made in (start, last):
        made.scored = [({"by": "trained model", "model": "M", "update": 0, "lines": scored}, Model.drawn())]
    return picture(folder, start, last)


def said(seen: Picture) -> tuple[str, int] | None:
    reading = seen.of("rows a prompt")
    return reading and (reading.kind, reading.numbers["missing"])


@pytest.mark.parametrize(
    ("kept", "scored", "expected"),
    [
        (range(10), 12, ("attention", 2)),  # the last incomplete batch is dropped
        (range(10), 10, ("read", 0)),  # prompts with other numbers of rows
        ((0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11), 12, ("read", 1)),  # a row that a filter took
        (range(12), 12, None),
    ],
)
def test_rows_that_never_train(
    kept: Sequence[int], scored: int, expected: tuple[str, int] | None, tmp_path: Path
) -> None:
    assert said(shown(tmp_path, list(kept), scored)) == expected


def test_rows_of_another_update_are_not_missing(tmp_path: Path) -> None:
    """Mini-batches of one rollout cut a prompt in two."""
    assert said(shown(tmp_path, range(10), 12, others=[8, 9, 10, 11, 0])) == ("read", 0)


def test_a_row_that_a_loop_has_grown_is_one() -> None:
    scored = Lines()
    for row in ("ab", "ac", "abx", "acy", "abxz", "abx", "q"):  # of "abxz", "abx" is the beginning, scored again
        scored.add([row[: k + 1] for k in range(len(row))], [1] * len(row))
    row = {"keys": ["a", "ab", "abx"], "attended": [1, 1, 1]}
    assert scored.facts([row], [1])["lines"] == 2
    assert scored.facts([row], [2])["lines"] == 1
    assert scored.facts([row], [None])["lines"] == 0
