"""Second updates whose KL shows although micro-batches have divisors of their own, or a mask leaves tokens out."""

from pathlib import Path

import pytest
from recordings import Made, lines
from scenarios import LENGTHS, advantages, picture, second, token_mean


def updates() -> tuple[Made, Made]:
    """Two updates of one rollout with a token mean, a clip and a KL by k3."""
    return second(lines(LENGTHS), advantages(), beta=0.5, weigh=token_mean, bounds=(0.8, 1.2), step=0.1)


def test_means_of_micro_batches_are_read_beside_a_kl(tmp_path: Path) -> None:
    """The mean over passes of the mean over their tokens: one factor for each of four passes."""
    made = updates()
    for each in made:
        tokens = [sum(row.length for row in each.rows[k // 2 * 2 : k // 2 * 2 + 2]) for k in range(len(each.rows))]
        each.coefficients = [c * sum(LENGTHS) / (4 * n) for c, n in zip(each.coefficients, tokens, strict=True)]
    shown = picture(tmp_path, *made)
    reading = shown.of("KL")
    assert reading is not None
    assert reading.numbers["beta"] == pytest.approx(0.5, rel=1e-3)
    assert reading.sentence.endswith("averaged over tokens of each forward pass")
    assert not [each.name for each in shown.readings if each.kind == "attention"]


def test_a_mask_of_first_tokens_is_read_beside_a_kl(tmp_path: Path) -> None:
    made = updates()
    for each in made:
        for row, coefficients in zip(each.rows, each.coefficients, strict=True):
            coefficients[len(row.prompt)] = 0.0
    shown = picture(tmp_path, *made)
    divergence = shown.of("KL")
    assert divergence is not None
    assert divergence.numbers["forms"] == ["k3"]
    assert [each.name for each in shown.readings if each.kind == "attention"] == ["first token"]
