"""Rows that were sampled after an update: whose weights sampled them, and which weights their ratio divides by."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Made, Model, events, generated, lines, spread, write
from scenarios import GROUP, LENGTHS, advantages, by_token, row_mean

from gates.xray.picture import Picture, read
from gates.xray.recorder.gates_xray_sampler import whose

START = Model.drawn()
LATER = START.moved(np.random.default_rng(9).normal(0.0, 0.06, START.flat.size))


def shown(folder: Path, weights: str | None, *, ratio: bool, fresh: bool = True, reference: bool = False) -> Picture:
    """Two updates of a rollout each; in the second one, tokens may weigh by their ratio to the first weights."""
    first, rows = lines(LENGTHS, GROUP, seed=5), lines(LENGTHS, GROUP)
    weigh = row_mean(rows, advantages())

    moved = [LATER.log_probs(row.ids) - START.log_probs(row.ids) for row in rows]

    def coefficient(row: int, token: int) -> float:
        apart = float(moved[row][len(rows[row].prompt) + token])
        return float(weigh[row] * (np.exp(apart) if ratio else 1.0))

    last = Made(LATER, rows, by_token(rows, coefficient), 2, start=START)
    if reference:
        last.scored = [({"by": "another model", "update": 1}, START)]
    write(folder / "process-1", Made(START, first, spread(first, weigh.tolist()), after=LATER.flat))
    write(folder / "process-1", last)
    asked: list[dict[str, Any]] = [generated(), {**generated(), "update": 1, "weights": weights}]
    at = 1 if fresh else 0
    drawn = [{"event": "sampled", "update": at, "prompt": row.prompt, "completion": row.completion} for row in rows]
    events(folder / "process-1", *asked, *drawn, updates=2)
    return read(folder).updates[-1]


def complaints(seen: Picture) -> list[str]:
    return [each.name for each in seen.readings if each.kind == "attention"]


@pytest.mark.parametrize(("weights", "reference"), [("trained model", True), ("copy", False)])
def test_a_ratio_to_weights_that_are_older_than_the_rows(weights: str, reference: bool, tmp_path: Path) -> None:
    seen = shown(tmp_path, weights, ratio=True, reference=reference)
    reading = seen.of("ratio")
    assert reading is not None
    assert complaints(seen) == ["ratio"]
    assert "1 update older than the rows" in reading.sentence
    assert ("the reference has them" in reading.sentence) == reference


@pytest.mark.parametrize(
    ("weights", "fresh"), [("another model", True), (None, True), ("trained model", False)], ids=str
)
def test_a_ratio_of_rows_that_others_sampled_or_earlier(weights: str | None, fresh: bool, tmp_path: Path) -> None:
    assert not complaints(shown(tmp_path, weights, ratio=True, fresh=fresh))


@pytest.mark.parametrize(("ratio", "kind"), [(False, "attention"), (True, "read")])
def test_a_sampler_with_the_weights_of_the_start(ratio: bool, kind: str, tmp_path: Path) -> None:
    """A ratio to the weights that sampled corrects for it, as in asynchronous training."""
    seen = shown(tmp_path, "start", ratio=ratio)
    reading = seen.of("sampler")
    assert reading is not None
    assert (reading.kind, "stale" in reading.sentence) == (kind, True)
    assert complaints(seen) == (["sampler"] if kind == "attention" else [])


@pytest.mark.parametrize("weights", ["copy", None])
def test_a_sampler_that_is_refreshed_or_not_known(weights: str | None, tmp_path: Path) -> None:
    seen = shown(tmp_path, weights, ratio=False)
    assert seen.of("sampler") is None
    assert not complaints(seen)


def test_whose_weights_a_sampler_has() -> None:
    start, trained = {"w": [1.0], "v": [2.0]}, {"w": [1.5], "v": [2.5], "frozen": [3.0]}

    def named(sampler: dict[str, list[float]]) -> str | None:
        return whose(sampler, trained, start, lambda a, b: a == b)

    assert named({**trained, "more": [0.0]}) == "trained model"
    assert named({"w": [1.5], "v": [2.5]}) == "copy"
    assert named({"w": [1.0], "v": [2.0], "frozen": trained["frozen"]}) == "start"
    assert named({"w": [1.5], "v": [2.0]}) == "another model"
    assert named({"other": [1.5]}) is None
    assert whose(trained, trained, None, lambda a, b: a == b) is None
