"""A ratio to a power, as of log-probs that are divided by the temperature after the softmax."""

from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, by_token, picture, row_mean

from gates.xray.picture import Picture

POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))


def shown(folder: Path, temperature: float, beta: float = 0.0, bounds: tuple[float, float] = (0.0, 9.0)) -> Picture:
    """Two updates whose log-probs are divided by a temperature: a clipped ratio, and a KL by k3 to the first weights."""
    rows = lines(LENGTHS, GROUP)
    weights = row_mean(rows, advantages()) / temperature

    moved = [(LATER.log_probs(row.ids) - POLICY.log_probs(row.ids)) / temperature for row in rows]

    def coefficient(row: int, token: int) -> float:
        apart = float(moved[row][len(rows[row].prompt) + token])
        clipped = np.exp(apart) > bounds[1] if weights[row] < 0 else np.exp(apart) < bounds[0]
        divergence = beta * (1.0 - np.exp(-apart)) / rows[row].length / len(rows) / temperature
        return float((0.0 if clipped else weights[row] * np.exp(apart)) + divergence)

    first = Made(POLICY, rows, spread(rows, weights.tolist()), after=LATER.flat)
    return picture(folder, first, Made(LATER, rows, by_token(rows, coefficient), 2, start=POLICY))


@pytest.mark.parametrize(
    ("temperature", "beta", "bounds"),
    [(1.5, 0.0, (0.0, 9.0)), (0.85, 0.0, (0.9, 1.1)), (1.5, 0.5, (0.9, 1.1))],
    ids=["open", "clipped", "clipped beside a KL"],
)
def test_log_probs_that_are_divided_after_the_softmax(
    temperature: float, beta: float, bounds: tuple[float, float], tmp_path: Path
) -> None:
    """Any exponent is read without a KL, and that of a usual temperature beside one."""
    seen = shown(tmp_path, temperature, beta, bounds)
    reading = seen.of("ratio")
    assert reading is not None
    assert (reading.kind, reading.numbers["power"]) == ("attention", pytest.approx(1.0 / temperature, rel=1e-3))
    assert f"temperature of {temperature:g} after the softmax" in reading.sentence
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["ratio"]
    divergence = seen.of("KL")
    assert divergence is not None
    assert bool(divergence.numbers["beta"]) == bool(beta)


def test_a_ratio_as_it_is_has_no_power(tmp_path: Path) -> None:
    seen = shown(tmp_path, 1.0, 0.5, (0.9, 1.1))
    assert seen.of("ratio") is None
    assert not [each.name for each in seen.readings if each.kind == "attention"]
