"""Old log-probs that half precision has rounded are named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines
from scenarios import GROUP, LENGTHS, advantages, by_token, picture, row_mean

from gates.model import Array
from gates.xray.picture import Picture
from gates.xray.reading import rounded

POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))


def half(values: Array) -> Array:
    return values.astype(np.float16).astype(float)


def brain(values: Array) -> Array:
    """The nearest numbers of which 8 bits are kept: steps of 1/32 from 4 to 8, of 1/64 from 2 to 4."""
    steps = 2.0 ** (np.floor(np.log2(np.abs(values))) - 7)
    return np.asarray(np.round(values / steps) * steps)


def jittered(values: Array) -> Array:
    """Log-probs of a pass that is as rough, but whose numbers lie on no grid."""
    return values + np.random.default_rng(1).normal(0.0, 0.02, values.shape)


def shown(folder: Path, keep: Callable[[Array], Array], count: int = 1, beta: float = 0.0) -> Picture:
    """Updates of one rollout whose old log-probs are kept roughly."""
    rows = lines(LENGTHS, GROUP)
    weights = row_mean(rows, advantages())

    def made(model: Model, number: int) -> Made:
        scored = [(model.log_probs(row.ids), POLICY.log_probs(row.ids)) for row in rows]

        def coefficient(row: int, token: int) -> float:
            place, (values, start) = len(rows[row].prompt) + token, scored[row]
            penalty = beta * (1.0 - np.exp(start[place] - values[place])) / rows[row].length / len(rows)
            return float(weights[row] * np.exp(values[place] - keep(start)[place]) + penalty)

        after = LATER.flat if number < count else None
        return Made(model, rows, by_token(rows, coefficient), number, start=POLICY, after=after)

    return picture(folder, *[made(model, number) for number, model in enumerate((POLICY, LATER)[:count], 1)])


@pytest.mark.parametrize(("keep", "name"), [(brain, "bfloat16"), (half, "float16")])
def test_a_ratio_to_rounded_log_probs(keep: Callable[[Array], Array], name: str, tmp_path: Path) -> None:
    seen = shown(tmp_path, keep)
    reading = seen.of("ratio")
    assert reading is not None
    assert (reading.kind, reading.numbers["rounded"], "rounding alone" in reading.sentence) == ("attention", name, True)
    assert [each.name for each in seen.readings if each.kind == "attention"] == ["ratio"]


def test_the_same_log_probs_in_a_later_update(tmp_path: Path) -> None:
    seen = shown(tmp_path, brain, 2, beta=0.5)
    reading, divergence = seen.of("ratio"), seen.of("KL")
    assert reading is not None
    assert divergence is not None
    assert (reading.numbers["rounded"], "rounding alone" in reading.sentence) == ("bfloat16", False)
    assert divergence.numbers["beta"] == pytest.approx(0.5, rel=1e-3)


def test_rough_log_probs_on_no_grid_are_not_named(tmp_path: Path) -> None:
    reading = shown(tmp_path, jittered).of("ratio")
    assert reading is None or "rounded" not in reading.numbers


@pytest.mark.parametrize("bits", [8, 11])
def test_rounding_keeps_the_bits_of_a_significand(bits: int) -> None:
    values = np.random.default_rng(0).normal(-4.0, 2.0, 100)
    expected = brain(values) if bits == 8 else half(values)
    assert (rounded.rounded(values, bits) == expected).all()
