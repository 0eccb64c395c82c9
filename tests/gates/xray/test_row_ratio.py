"""Rows that weigh by a ratio of their own: its range is said, and that no bound cuts one."""

from pathlib import Path

import numpy as np
import pytest
from recordings import lines
from scenarios import GROUP, LENGTHS, advantages, picture, second


@pytest.mark.parametrize(("bounds", "open_"), [((0.0, 9.0), True), ((0.95, 1.05), False)])
def test_the_range_of_the_rows_ratios(bounds: tuple[float, float], open_: bool, tmp_path: Path) -> None:
    rows = lines(LENGTHS, GROUP)
    first, last = second(rows, advantages(), ratio="sequence", bounds=bounds)
    begins = [(len(row.prompt), len(row.prompt) + row.length) for row in rows]
    apart = [last.model.log_probs(row.ids) - first.model.log_probs(row.ids) for row in rows]
    ratios = [np.exp(values[start:stop].mean()) for values, (start, stop) in zip(apart, begins, strict=True)]
    reading = picture(tmp_path, first, last).of("second update")
    assert reading is not None
    assert "by the mean of their ratios" in reading.sentence
    assert (f"{min(ratios):.3g} to {max(ratios):.3g}" in reading.sentence) == open_
    assert ("none of them clipped" in reading.sentence) == open_
