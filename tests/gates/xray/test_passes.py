"""Forward passes that count several times: backward of a running sum."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, lines
from scenarios import picture, second, token_mean

from gates.model import Array
from gates.xray.picture import Picture

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 5, 3, 7, 5, 8)
GROUP = 4


def scaled(rewards: Array) -> Array:
    """z-scores of rewards within groups of four."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return np.asarray((centred / centred.std(axis=1, ddof=1, keepdims=True)).ravel())


REWARDS = np.random.default_rng(4).normal(size=(3, GROUP))
ORDER = (0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)  # rows whose prompts take turns


def shown(
    folder: Path,
    factors: Sequence[float],
    *,
    updates: int = 1,
    weights: Array | None = None,
    order: Sequence[int] = range(12),
) -> Picture:
    """A token mean of three passes, each times a factor; the second update has a clip and a KL."""
    rows: list[Line] = [lines(LENGTHS, GROUP, prompts=(5, 4, 6))[k] for k in order]
    advantages = (scaled(REWARDS) if weights is None else weights)[list(order)]
    made: tuple[Made, ...] = second(rows, advantages, beta=0.5, bounds=(0.8, 1.2), weigh=token_mean)
    if updates == 1:
        made[0].after = None
    for each in made[:updates]:
        each.call = GROUP
        each.coefficients = [factors[k // GROUP] * values for k, values in enumerate(each.coefficients)]
    return picture(folder, *made[:updates])


@pytest.mark.parametrize(("factors", "updates"), [((3, 2, 1), 1), ((3, 2, 1), 2), ((1, 2, 3), 1)])
def test_passes_of_one_prompt_each(factors: Sequence[float], updates: int, tmp_path: Path) -> None:
    """Scaled advantages have one norm in the first update; in the second one the KL tells."""
    seen = shown(tmp_path, factors, updates=updates)
    reading = seen.of("micro-batches")
    assert reading is not None
    assert (reading.kind, reading.numbers["factors"]) == ("attention", list(factors))
    assert ("running sum" in reading.sentence) == (factors[0] > factors[-1])
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["micro-batches"]


def test_rows_of_a_prompt_in_several_passes(tmp_path: Path) -> None:
    """Rows of a prompt sum to 0 without the factors only; no scale of rewards is asked for."""
    centred = (REWARDS - REWARDS.mean(axis=1, keepdims=True)).ravel()
    reading = shown(tmp_path, (3, 2, 1), weights=centred, order=ORDER).of("micro-batches")
    assert reading is not None
    assert "sum to 0" in reading.because


@pytest.mark.parametrize(
    ("factors", "weights", "order", "updates"),
    [
        ((1, 1, 1), None, range(12), 1),
        ((1, 1, 1), None, ORDER, 1),
        ((3, 2, 1.1), None, range(12), 1),  # no small integers
        ((3, 2, 1), (REWARDS - REWARDS.mean(axis=1, keepdims=True)).ravel(), range(12), 1),  # prompts differ anyway
        ((27 / 27, 27 / 23, 27 / 23), None, range(12), 2),  # means of passes with 27, 23 and 23 tokens
    ],
    ids=["alike", "prompts in turn", "no integers", "rewards of other scales", "means of passes"],
)
def test_other_weights_are_not_named(
    factors: Sequence[float], weights: Array | None, order: Sequence[int], updates: int, tmp_path: Path
) -> None:
    assert shown(tmp_path, factors, updates=updates, weights=weights, order=order).of("micro-batches") is None
