"""Rows without an advantage and without the KL that every other row has."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from recordings import Line, lines
from scenarios import GROUP, LENGTHS, advantages, picture, second

from gates.xray.picture import Picture


def shown(
    folder: Path,
    without: Collection[int],
    *,
    kept: Collection[int] = (),
    beta: float = 0.5,
    rows: Sequence[Line] | None = None,
) -> Picture:
    """GRPO with a KL, in whose updates some rows weigh nothing; rows to keep have an advantage of 0 and their KL."""
    weights = advantages()
    weights[list(kept)] = 0.0
    updates = second(rows or lines(LENGTHS, GROUP), weights, beta=beta)
    for made in updates:
        made.call = GROUP
        made.coefficients = [0.0 * row if k in without else row for k, row in enumerate(made.coefficients)]
    return picture(folder, *updates)


def test_rows_of_a_pass_whose_gradient_is_lost(tmp_path: Path) -> None:
    reading = shown(tmp_path, range(GROUP)).of("left out")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == ("attention", [0, 1, 2, 3])
    assert "all rows of 1 of 2 forward passes: all but the last" in reading.sentence


def test_single_rows(tmp_path: Path) -> None:
    reading = shown(tmp_path, (2, 5)).of("left out")
    assert reading is not None
    assert (reading.kind, "passes" in reading.sentence) == ("attention", False)


@pytest.mark.parametrize(("without", "kept", "beta"), [((), range(GROUP), 0.5), ((), (), 0.5), (range(GROUP), (), 0.0)])
def test_rows_with_their_kl_or_where_there_is_none(
    without: Collection[int], kept: Collection[int], beta: float, tmp_path: Path
) -> None:
    assert shown(tmp_path, without, kept=kept, beta=beta).of("left out") is None


@pytest.mark.parametrize(("without", "kind"), [((2, 6), "read"), ((2,), "attention")])
def test_all_rows_that_were_cut_off_may_be_meant(without: Collection[int], kind: str, tmp_path: Path) -> None:
    rows = lines((7, 5, 12, 6, 4, 8, 12, 5), GROUP)
    for row in (2, 6):
        rows[row].completion[-1] = 7  # no closing token, and as long as the sampler was asked for
    reading = shown(tmp_path, without, rows=rows).of("left out")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == (kind, list(without))
