"""A reference that is the policy itself, which all pairs weigh alike shows in a later update."""

from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, lines, spread
from scenarios import picture

START = Model.drawn()
LATER = START.moved(np.random.default_rng(4).normal(0.0, 0.2, START.flat.size))


def update(number: int, model: Model, reference: Model, scored: int) -> Made:
    """Four pairs that weigh the same: DPO where policy and reference are equal, or a loss that is flat, as a hinge is."""
    rows = lines((7, 5, 9, 6, 4, 8, 6, 7), 2, prompts=(3, 5, 4, 6))
    for row in rows:
        row.seen = False
    who = {"by": "another model", "model": "M", "update": scored}
    before = {"by": "another model", "model": "M", "update": 0}
    scorers = [(before, START), *([(who, reference)] if scored else [])]
    return Made(model, rows, spread(rows, [-0.05, 0.05] * 4), number, start=START, scored=scorers)


@pytest.mark.parametrize(
    ("model", "reference", "scored", "named"),
    [
        (LATER, LATER, 1, True),
        (LATER, START, 1, False),
        (LATER, START, 0, False),
        (START, START, 1, False),
    ],
    ids=["policy", "hinge", "hinge-scored-once", "not-moved"],
)
def test_a_reference_that_follows_the_policy(
    model: Model, reference: Model, scored: int, named: bool, tmp_path: Path
) -> None:
    shown = picture(tmp_path, update(1, START, START, 0), update(2, model, reference, scored), sampled=False)
    reading = shown.of("reference")
    assert (reading is not None) == named
    if reading is not None:
        assert (reading.kind, "the reference is the policy itself" in reading.sentence) == ("attention", True)
