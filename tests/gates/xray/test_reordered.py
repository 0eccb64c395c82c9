"""A KL whose reference log-probs are those of other rows is named."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines
from scenarios import GROUP, LENGTHS, advantages, by_token, picture, row_mean, token_mean

from gates.xray.picture import Picture

POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))
ORDER = (1, 2, 0, 4, 3, 6, 7, 5)
BETA = 0.3


def update(number: int, order: Sequence[int], *, mean: bool, noise: float = 0.0, last: bool = True) -> Made:
    """GRPO with a clipped ratio and a KL by k3 to the first policy's log-probs of rows in another order, slot by slot."""
    rows, model = lines(LENGTHS, GROUP), POLICY if number == 1 else LATER
    weigh = row_mean if mean else token_mean
    weights, units = weigh(rows, advantages()), -weigh(rows, np.ones(len(rows)))
    values, first = ([each.log_probs(row.ids) for row in rows] for each in (model, POLICY))
    rng = np.random.default_rng(2)

    def coefficient(row: int, token: int) -> float:
        place = len(rows[row].prompt) + token
        ratio = float(np.exp(values[row][place] - first[row][place]))
        clipped = ratio > 1.2 if weights[row] < 0 else ratio < 0.8
        apart = values[row][place] - first[order[row]][place] + noise * rng.normal()
        return float((0.0 if clipped else weights[row] * ratio) + BETA * units[row] * (1.0 - np.exp(-apart)))

    made = Made(model, rows, by_token(rows, coefficient), number, start=POLICY, after=None if last else LATER.flat)
    made.scored = [({"by": "another model", "model": "M", "update": 0}, POLICY)]
    return made


def shown(folder: Path, *updates: Made) -> Picture:
    return picture(folder, *updates)


@pytest.mark.parametrize("mean", [True, False], ids=["row-mean", "token-mean"])
@pytest.mark.parametrize("updates", [1, 2])
def test_a_reference_in_another_order(mean: bool, updates: int, tmp_path: Path) -> None:
    seen = shown(
        tmp_path, *(update(number, ORDER, mean=mean, last=number == updates) for number in range(1, updates + 1))
    )
    reading = seen.of("KL")
    assert reading is not None
    assert (reading.kind, "log-probs are those of other rows" in reading.sentence) == ("attention", True)
    assert reading.numbers["order"] == list(ORDER)
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["KL"]


def test_other_differences_are_no_order(tmp_path: Path) -> None:
    reading = shown(tmp_path, update(1, range(8), mean=True, noise=0.5)).of("KL")
    assert reading is None or "other rows" not in reading.sentence


def test_a_reference_in_its_order(tmp_path: Path) -> None:
    seen = shown(tmp_path, update(1, range(8), mean=True, last=False), update(2, range(8), mean=True))
    assert not [each.name for each in seen.readings if each.kind == "attention"]
