"""Coefficients that grow with the token's own log-prob."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines
from scenarios import GROUP, LENGTHS, advantages, by_token, picture, token_mean

from gates.xray.picture import Picture

POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))
Of = Callable[
    [float, float, float], float
]  # a token's coefficient by the weight of its row, its log-prob and its ratio


def shown(folder: Path, of: Of, count: int = 1, beta: float = 0.0) -> Picture:
    """Updates of one rollout, with a KL by k3 to the first weights."""
    rows = lines(LENGTHS, GROUP)
    weights = token_mean(rows, advantages())

    def made(model: Model, number: int) -> Made:
        values, starts = ([each.log_probs(row.ids) for row in rows] for each in (model, POLICY))

        def coefficient(row: int, token: int) -> float:
            place = len(rows[row].prompt) + token
            own = float(values[row][place])
            apart = own - float(starts[row][place])
            return of(float(weights[row]), own, float(np.exp(apart))) + beta * (1.0 - float(np.exp(-apart)))

        after = LATER.flat if number < count else None
        return Made(model, rows, by_token(rows, coefficient), number, start=POLICY, after=after)

    return picture(folder, *[made(model, number) for number, model in enumerate((POLICY, LATER)[:count], 1)])


@pytest.mark.parametrize(("count", "beta"), [(1, 0.0), (2, 0.02)])
def test_a_weight_that_is_not_detached(count: int, beta: float, tmp_path: Path) -> None:
    """The derivative of A·r·log p, where r should be a constant."""
    seen = shown(tmp_path, lambda weight, own, ratio: weight * ratio * (1.0 + own), count, beta)
    reading, between = seen.of("within rows"), seen.of("between rows")
    assert reading is not None
    assert (reading.kind, "not detached" in reading.sentence) == ("attention", True)
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["within rows"]
    assert between is None or "token weighs the same" in between.sentence


@pytest.mark.parametrize(
    ("of", "kind", "words"),
    [
        (lambda weight, own, _: weight + 0.01 * np.exp(own) * (1.0 + own), "attention", "leaves out all other tokens"),
        (lambda weight, own, _: weight + 0.01 * own, "read", "each token's reward has an entropy"),
    ],
    ids=["p·log p of sampled tokens", "an entropy in the reward"],
)
def test_a_term_of_the_log_prob_alone(of: Of, kind: str, words: str, tmp_path: Path) -> None:
    reading = shown(tmp_path, of).of("within rows")
    assert reading is not None
    assert (reading.kind, words in reading.sentence) == (kind, True)


def test_a_detached_weight_is_a_ratio(tmp_path: Path) -> None:
    reading = shown(tmp_path, lambda weight, _, ratio: weight * ratio, 2).of("within rows")
    assert reading is not None
    assert "by their ratio" in reading.sentence


def test_a_slope_of_each_row_is_not(tmp_path: Path) -> None:
    reading = shown(tmp_path, lambda weight, own, _: weight * (1.0 + 0.5 * own)).of("within rows")
    assert reading is not None
    assert "weigh unlike" in reading.sentence
