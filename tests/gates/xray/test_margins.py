"""What the weights of preference pairs show of the reference."""

from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import picture

from gates.model import Array

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 7)
POLICY, REFERENCE = (
    Model.drawn(0),
    Model.drawn(0).moved(np.random.default_rng(4).normal(0.0, 0.2, Model.drawn().flat.size)),
)


def pairs() -> list[Line]:
    """Four pairs, chosen and rejected in turn; nobody saw where prompts end."""
    rows = lines(LENGTHS, 2, prompts=(3, 5, 4, 6))
    for row in rows:
        row.seen = False
    return rows


def margins(model: Model, rows: list[Line]) -> Array:
    """Log-prob of the chosen completion less that of the rejected one."""
    sums = np.array([model.log_probs(row.ids)[len(row.prompt) : len(row.prompt) + row.length].sum() for row in rows])
    return sums[::2] - sums[1::2]


def dpo(rows: list[Line], apart: Array, beta: float) -> list[Array]:
    """The mean over pairs of −log σ(β·x)."""
    pushes = beta / (1.0 + np.exp(beta * apart)) / len(apart)
    return spread(rows, np.stack([-pushes, pushes], axis=1).ravel().tolist())


def made(subtracted: Array, beta: float = 0.3) -> Made:
    rows = pairs()
    coefficients = dpo(rows, margins(POLICY, rows) - subtracted, beta)
    return Made(POLICY, rows, coefficients, scored=[({"by": "another model", "model": "M", "update": 0}, REFERENCE)])


@pytest.mark.parametrize(
    ("subtracted", "kind", "words"),
    [
        (margins(REFERENCE, pairs()), "read", "with another model as the reference"),
        (0.0 * margins(REFERENCE, pairs()), "attention", "no reference is subtracted"),
        (-margins(REFERENCE, pairs()), "attention", "chosen and rejected are exchanged"),
        (np.roll(margins(REFERENCE, pairs()), -1), "attention", "those of another pair, 1 pair on"),
    ],
    ids=["recorded", "none", "exchanged", "of-another-pair"],
)
def test_the_reference_is_read_off_the_pairs(subtracted: Array, kind: str, words: str, tmp_path: Path) -> None:
    reading = picture(tmp_path, made(subtracted), sampled=False).of("reference")
    assert reading is not None
    assert (reading.kind, reading.numbers["beta"]) == (kind, pytest.approx(0.3, rel=1e-3))
    assert words in reading.sentence


def test_another_loss_of_the_same_margins_is_not_named(tmp_path: Path) -> None:
    """IPO's weights are linear in the margin: no other reference makes DPO of them."""
    update = made(margins(REFERENCE, pairs()))
    rows = update.rows
    pushes = (1.0 + 0.02 * (margins(POLICY, rows) - margins(REFERENCE, rows))) / 4
    update.coefficients = spread(rows, np.stack([-pushes, pushes], axis=1).ravel().tolist())
    assert picture(tmp_path, update, sampled=False).of("reference") is None


def test_a_reference_that_nobody_recorded_is_not_named(tmp_path: Path) -> None:
    update = made(margins(Model.drawn(8), pairs()))
    assert picture(tmp_path, update, sampled=False).of("reference") is None


def test_a_pair_that_is_won_is_a_pair(tmp_path: Path) -> None:
    """Where the margin is large, the loss is flat, and no token of the pair trains beyond its error."""
    won = margins(POLICY, pairs()) - np.array([0.0, 90.0, 1.0, -2.0])
    shown = picture(tmp_path, made(won), sampled=False)
    objective = shown.of("objective")
    assert objective is not None
    assert objective.numbers["kind"] == "preference"
    assert len(objective.numbers["pairs"]) == 4
