"""Runs that are drawn: whatever is read of them is what they do."""

from pathlib import Path

import numpy as np
import pytest
from recordings import lines
from scenarios import picture, row_mean, second, token_mean

from gates.xray.picture import Picture


@pytest.mark.parametrize("seed", range(16))
def test_what_is_read_is_what_the_run_does(seed: int, tmp_path: Path) -> None:
    """Aggregation, level of the ratio, clip and KL of a drawn run are read rightly, or said not to show; nothing else alarms."""
    rng = np.random.default_rng(seed)
    group, prompts = int(rng.integers(3, 6)), int(rng.integers(1, 4))
    rows = lines(rng.integers(2, 10, group * prompts).tolist(), group, seed, prompts=(5, 4, 3))
    rewards = rng.integers(0, 2, (prompts, group)) if rng.random() < 0.5 else rng.normal(size=(prompts, group))
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    scores = (centred / (rewards.std(axis=1, ddof=1, keepdims=True) + 1e-4)).ravel()
    way, weigh = (("row mean", row_mean), ("token mean", token_mean))[seed % 2]
    beta = float(rng.choice([0.0, 0.0, 0.04, 0.5]))
    level = str(rng.choice(["token", "none", "sequence"]))
    bounds = (0.8, 1.2) if rng.random() < 0.5 else (0.0, 99.0)
    step = float(rng.choice([0.03, 0.06, 0.15]))
    shown = picture(
        tmp_path, *second(rows, scores, ratio=level, bounds=bounds, beta=beta, step=step, weigh=weigh, seed=seed)
    )
    assert number(shown, "between rows", "way") in {None, way}
    assert number(shown, "second update", "level") in {None, "row mean" if level == "sequence" else level}
    assert number(shown, "KL", "beta") in (None, pytest.approx(beta, rel=1e-3))
    assert shown.step.fit.unexplained < 1e-6
    quiet = ("prompt", "completion", "first token", "closing token", "mask", "padding", "within rows")
    assert not [r.sentence for r in shown.readings if r.kind == "attention" and r.name in quiet]


def number(shown: Picture, name: str, key: str) -> object:
    """Return a number of a reading; None where it was not asked or does not show."""
    reading = shown.of(name)
    return None if reading is None or reading.kind == "cannot tell" else reading.numbers.get(key)
