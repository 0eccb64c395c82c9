"""Rows of a prompt that are all pushed the same way."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, picture, row_mean

from gates.model import Array
from gates.xray.reading.reading import Reading

REWARDS = np.array([[1.0, 0.8, 0.7, 0.9], [0.5, 0.7, 0.8, 0.6]])


def said(folder: Path, advantages: Array, lengths: Sequence[int] = LENGTHS) -> Reading | None:
    rows = lines(lengths, GROUP)
    return picture(folder, Made(Model.drawn(), rows, spread(rows, row_mean(rows, advantages.ravel())))).of(
        "between rows"
    )


@pytest.mark.parametrize(
    ("advantages", "way", "words"),
    [
        (REWARDS, "up", "without a baseline"),
        (REWARDS - REWARDS.sum(1, keepdims=True) / 3, "down", "holds the row's own reward"),
        (-REWARDS, "down", "rewards below 0"),
    ],
    ids=["no baseline", "own reward in the sum", "rewards below 0"],
)
def test_no_baseline_of_the_group_pushes_all_rows_one_way(
    advantages: Array, way: str, words: str, tmp_path: Path
) -> None:
    """A legal choice looks the same, so it is read and not complained of."""
    reading = said(tmp_path, advantages)
    assert reading is not None
    assert (reading.kind, f"is pushed {way}" in reading.sentence, words in reading.remedy) == ("read", True, True)


@pytest.mark.parametrize("baseline", [REWARDS.mean(), np.array([[0.1], [1.2]])], ids=["of the batch", "of a critic"])
def test_prompts_that_are_pushed_in_both_ways_are_not(baseline: Array, tmp_path: Path) -> None:
    reading = said(tmp_path, REWARDS - baseline)
    assert reading is None or "is pushed" not in reading.sentence


def test_prompts_that_are_pushed_down_on_balance(tmp_path: Path) -> None:
    """The leave-one-out sum with the own reward is below the best rewards of a group."""
    rewards = np.array([[1.0, 0.2, 0.1, 0.4], [0.3, 1.1, 0.2, 0.3]])
    reading = said(tmp_path, rewards - rewards.sum(1, keepdims=True) / 3)
    assert reading is not None
    assert (reading.kind, reading.numbers["on_balance"]) == ("cannot tell", "down")
    assert "holds the row's own reward" in reading.remedy


def test_a_leave_one_out_baseline_has_both_ways(tmp_path: Path) -> None:
    others = (REWARDS.sum(1, keepdims=True) - REWARDS) / 3
    reading = said(tmp_path, REWARDS - others)
    assert reading is not None
    assert "averaged over its tokens first" in reading.sentence
