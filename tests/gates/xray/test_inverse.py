"""A ratio that is upside down is named: exp(old − new) in place of exp(new − old)."""

from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, by_token, picture, row_mean

from gates.xray.picture import Picture

POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))


def shown(folder: Path, *, power: float, beta: float = 0.0, bounds: tuple[float, float] = (0.0, 9.0)) -> Picture:
    """Two updates: −min(r^power·A, clip(r^power)·A), and a KL by k3 to the first weights."""
    rows = lines(LENGTHS, GROUP)
    weights = row_mean(rows, advantages()) * np.sign(power)

    def coefficient(row: int, token: int) -> float:
        place = len(rows[row].prompt) + token
        apart = float((LATER.log_probs(rows[row].ids) - POLICY.log_probs(rows[row].ids))[place])
        ratio = float(np.exp(power * apart))
        clipped = ratio > bounds[1] if weights[row] * power < 0 else ratio < bounds[0]
        divergence = beta * (1.0 - np.exp(-apart)) / rows[row].length / len(rows)
        return float((0.0 if clipped else weights[row] * ratio) + divergence)

    first = Made(POLICY, rows, spread(rows, weights.tolist()), after=LATER.flat)
    return picture(folder, first, Made(LATER, rows, by_token(rows, coefficient), 2, start=POLICY))


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("bounds", [(0.0, 9.0), (0.85, 1.15)], ids=["open", "clipped"])
def test_an_inverse_ratio(beta: float, bounds: tuple[float, float], tmp_path: Path) -> None:
    seen = shown(tmp_path, power=-1.0, beta=beta, bounds=bounds)
    reading = seen.of("ratio")
    assert reading is not None
    assert (reading.kind, "upside down" in reading.sentence) == ("attention", True)
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["ratio"]
    divergence = seen.of("KL")
    assert divergence is not None
    assert divergence.numbers["beta"] == pytest.approx(beta, rel=1e-3)


@pytest.mark.parametrize("power", [1.0, 0.5, -0.5])
def test_other_powers_of_the_ratio_are_not(power: float, tmp_path: Path) -> None:
    reading = shown(tmp_path, power=power, beta=0.5, bounds=(0.85, 1.15)).of("ratio")
    assert reading is None or "upside down" not in reading.sentence
