"""Completions of a group that are equal: only the sum of their coefficients shows."""

from pathlib import Path

import pytest
from recordings import lines
from scenarios import LENGTHS, advantages, picture, second

CLIP = (0.95, 1.05)


@pytest.mark.parametrize("copied", [(0, 1), (0, 1, 4, 5)], ids=["one pair", "two pairs"])
def test_a_clip_that_acts_on_one_of_two_equal_rows_hides_no_ratio(copied: tuple[int, ...], tmp_path: Path) -> None:
    """The rows that stand alone show it."""
    rows = lines(LENGTHS)
    for first, copy in zip(copied[::2], copied[1::2], strict=True):
        rows[copy] = rows[first]
    shown = picture(tmp_path, *second(rows, advantages(), bounds=CLIP, step=0.15))
    within, ratio = shown.of("within rows"), shown.of("second update")
    assert within is not None
    assert ratio is not None
    assert (within.kind, within.numbers["weights"]) == ("read", "ratio")
    assert (ratio.kind, ratio.numbers["level"]) == ("read", "token")


def test_a_group_of_copies_alone_is_not_complained_of(tmp_path: Path) -> None:
    rows = lines(LENGTHS)
    for first in range(0, len(rows), 2):
        rows[first + 1] = rows[first]
    shown = picture(tmp_path, *second(rows, advantages(), bounds=CLIP, step=0.15))
    for name in ("within rows", "second update"):
        reading = shown.of(name)
        assert reading is not None
        assert (reading.kind, "equals another one" in reading.sentence) == ("cannot tell", True)
