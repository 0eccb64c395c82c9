"""DAPO's filter and penalty, on cases worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from gates_reference.oracle.dynamic_sampling import completion_mask, keep_groups, overlong_penalty

REWARDS = np.array([[0, 1.0], [1, 1.0], [1, 0.0], [1, 1.0], [math.nan, math.nan], [1, 0.0], [math.nan, 0.0], [0, 0.0]])


@pytest.mark.parametrize(
    ("convention", "want"),
    [("accuracy", [True, False, False, False]), ("total", [True, True, False, False])],
    ids=["accuracy", "total"],
)
def test_which_groups_are_kept(convention: str, want: list[bool]) -> None:
    """Groups: right and wrong; both right; one unscored; NaN beside a 0, which counts 0 in the total and not in accuracy."""
    assert keep_groups(REWARDS, [1, 1], 2, convention=convention, accuracy=0).tolist() == want


def test_a_difference_of_one_bit_is_one() -> None:
    """The comparison is exact: 0.1 + 0.2 differs from 0.3."""
    assert keep_groups([[0.1 + 0.2], [0.3]], [1], 2, convention="total").tolist() == [True]


def test_overlong_penalty() -> None:
    """L_max 10, L_c 4: 0 up to 6, -1/4 a token up to 10, -1 beyond."""
    assert overlong_penalty([0, 6, 7, 8, 10, 11, 99], limit=10, buffer=4).tolist() == [0, 0, -0.25, -0.5, -1, -1, -1]


def test_completion_mask() -> None:
    """Of a truncated completion every slot goes if these are masked; one that ends in the last slot is not truncated."""
    lengths, ended = [2, 3, 3], np.array([True, True, False])
    plain = [[True, True, False], [True, True, True], [True, True, True]]
    assert completion_mask(lengths, ended, width=3, mask_truncated=False).tolist() == plain
    masked = completion_mask(lengths, ended, width=3, mask_truncated=True)
    assert masked.tolist() == [*plain[:2], [False, False, False]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: keep_groups(REWARDS, [1, 1], 3, convention="total"), "multiple of group_size 3"),
        (lambda: keep_groups(REWARDS, [1, 1], 2, convention="accuracy"), "`accuracy` is None"),
        (lambda: keep_groups(REWARDS, [1, 1], 2, convention="sum"), "`convention` is 'sum'"),
        (lambda: overlong_penalty([1], limit=4, buffer=5), "`buffer` is 5"),
        (lambda: overlong_penalty([1], limit=4, buffer=0), "`buffer` is 0"),
        (lambda: completion_mask([3], np.array([True]), width=2, mask_truncated=True), "`lengths`"),
        (lambda: completion_mask([1], [1], width=2, mask_truncated=True), "`ended` has dtype int64"),
    ],
    ids=["uneven", "no-column", "convention", "wide", "none", "long", "ended"],
)
def test_errors(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
