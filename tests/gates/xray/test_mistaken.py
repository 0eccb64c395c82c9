"""Old log-probs of another token, of other rows or of another pass are named; other weights of tokens are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines
from scenarios import LENGTHS, advantages, by_token, picture, row_mean

from gates.model import Array
from gates.xray.step import PADDED

Old = Callable[[list[Array], int, int], float]
POLICY = Model.drawn()
LATER = POLICY.moved(np.random.default_rng(9).normal(0.0, 0.06, POLICY.flat.size))
OTHER = POLICY.moved(np.random.default_rng(2).normal(0.0, 0.1, POLICY.flat.size))


def completions(model: Model, rows: list[Line]) -> list[Array]:
    """The log-probs of each completion."""
    return [model.log_probs(row.ids)[len(row.prompt) : len(row.prompt) + row.length] for row in rows]


def late(old: list[Array], row: int, token: int) -> float:
    return float(old[row][max(0, token - 1)])


def early(old: list[Array], row: int, token: int) -> float:
    return float(old[row][token + 1]) if token + 1 < len(old[row]) else 0.0


def of_next_row(old: list[Array], row: int, token: int) -> float:
    values = old[(row + 1) % len(old)]
    return float(values[token]) if token < len(values) else 0.0


def update(
    model: Model, old: Old, *, number: int = 1, beta: float = 0.0, bounds: tuple[float, float] = (0.8, 1.2)
) -> Made:
    """GRPO with a clipped ratio to these old log-probs of the first policy, and a KL by k3 to it."""
    rows = lines(LENGTHS)
    weights, values, first = row_mean(rows, advantages()), completions(model, rows), completions(POLICY, rows)

    def coefficient(row: int, token: int) -> float:
        ratio = float(np.exp(values[row][token] - old(first, row, token)))
        clipped = ratio > bounds[1] if weights[row] < 0 else ratio < bounds[0]
        apart = values[row][token] - first[row][token]
        divergence = beta * (1.0 - np.exp(-apart)) / rows[row].length / len(rows)
        return float((0.0 if clipped else weights[row] * ratio) + divergence)

    return Made(model, rows, by_token(rows, coefficient), number, start=POLICY)


@pytest.mark.parametrize(
    ("old", "words"),
    [(late, "late by one"), (early, "early by one"), (of_next_row, "the log-probs of other rows, 1 row on")],
    ids=["late", "early", "next-row"],
)
def test_old_log_probs_of_another_token_are_named(old: Old, words: str, tmp_path: Path) -> None:
    shown = picture(tmp_path, update(POLICY, old))
    reading = shown.of("ratio")
    assert reading is not None
    assert reading.kind == "attention"
    assert words in reading.sentence
    assert [each.name for each in shown.readings if each.kind == "attention"] == [
        "ratio"
    ]  # clipped tokens are no holes


def test_the_second_update_of_such_a_rollout_is_read_beside_a_kl(tmp_path: Path) -> None:
    shown = picture(tmp_path, update(POLICY, late), update(LATER, late, number=2, beta=0.5))
    reading = shown.of("ratio")
    assert reading is not None
    assert "late by one" in reading.sentence
    divergence = shown.of("KL")
    assert divergence is not None
    assert divergence.numbers["beta"] == pytest.approx(0.5, rel=1e-3)


def test_a_pass_that_attended_to_padding_is_named(tmp_path: Path) -> None:
    made = update(POLICY, lambda _, row, token: float(completions(OTHER, lines(LENGTHS))[row][token]))
    made.scored = [({"by": PADDED, "model": "M", "update": 0}, OTHER)]
    reading = picture(tmp_path, made).of("ratio")
    assert reading is not None
    assert (reading.kind, "a pass that attended to padding" in reading.sentence) == ("attention", True)


def test_another_pass_over_the_same_weights_needs_attention(tmp_path: Path) -> None:
    made = update(POLICY, lambda _, row, token: float(completions(OTHER, lines(LENGTHS))[row][token]))
    made.scored = [({"by": "trained model", "model": "M", "update": 0}, OTHER)]
    reading = picture(tmp_path, made).of("ratio")
    assert reading is not None
    assert (reading.kind, "another pass over these same weights" in reading.sentence) == ("attention", True)


def test_weights_of_single_tokens_are_no_mistake_of_old_log_probs(tmp_path: Path) -> None:
    """GAE gives each token an advantage of its own."""
    rows, rng = lines(LENGTHS), np.random.default_rng(1)
    drawn = rng.normal(size=(len(rows), max(LENGTHS)))
    shown = picture(tmp_path, Made(POLICY, rows, by_token(rows, lambda row, token: float(drawn[row][token]))))
    assert shown.of("ratio") is None
    reading = shown.of("within rows")
    assert reading is not None
    assert reading.numbers["weights"] == "unlike"
