"""Rows of a rollout that an update trains several times, while others are not in it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Made, Model, events, generated, lines, spread, write
from scenarios import GROUP, LENGTHS

from gates.xray.picture import read
from gates.xray.reading.reading import Reading
from gates.xray.recorder.gates_xray_lines import Lines

WEIGHTS = np.random.default_rng(2).normal(0.0, 0.1, len(LENGTHS))
ONCE = [1] * len(LENGTHS)
DRAWN = (0, 0, 0, 2, 4, 5, 5, 7)  # of eight rows: 1, 3 and 6 are missing


def said(folder: Path, kept: Sequence[int], scored: int, times: Sequence[int], by: str = "scorer") -> Reading | None:
    """An update of some rows of a rollout, each as often as it is listed; a scorer or a sampler has seen the rollout."""
    rows = lines(LENGTHS, GROUP)
    trained = [rows[k] for k in kept]
    made = Made(Model.drawn(), trained, spread(trained, WEIGHTS[list(kept)].tolist()))
    seen = [{"event": "sampled", "update": 0, "prompt": row.prompt, "completion": row.completion} for row in rows]
    if by == "scorer":
        facts = {"by": "another model", "scored": scored, "times": [times[k] for k in kept]}
        made.scored = [(facts, Model.drawn())]
    write(folder / "process-1", made)
    events(folder / "process-1", generated(), *(seen if by == "sampler" else []))
    return read(folder).updates[-1].of("duplicates")


@pytest.mark.parametrize("by", ["scorer", "sampler"])
def test_rows_that_are_drawn_with_replacement(by: str, tmp_path: Path) -> None:
    reading = said(tmp_path, DRAWN, 8, ONCE, by)
    assert reading is not None
    assert (reading.kind, "with replacement" in reading.sentence) == ("attention", True)
    assert (reading.numbers["times"], reading.numbers["missing"]) == ([3, 2], 3)


@pytest.mark.parametrize(
    ("scored", "times"),
    [
        (8, [3, 0, 1, 0, 1, 2, 0, 1]),  # the sampler drew them so
        (12, ONCE),  # a rollout of more rows, of which some may be equal
        (0, [0] * 8),  # nobody has scored them
    ],
    ids=["equal in the rollout", "a mini-batch", "unseen"],
)
def test_rows_that_may_be_equal_by_chance(scored: int, times: Sequence[int], tmp_path: Path) -> None:
    reading = said(tmp_path, DRAWN, scored, times)
    assert reading is not None
    assert "with replacement" not in reading.sentence


def test_every_row_once_is_not(tmp_path: Path) -> None:
    assert said(tmp_path, range(8), 8, ONCE) is None


def test_a_row_is_counted_as_often_as_it_is_scored() -> None:
    scored = Lines()
    for row in ("ab", "ac", "abx", "ac"):
        scored.add([row[: k + 1] for k in range(len(row))], [1] * len(row))
    rows = [
        {"keys": [row[: k + 1] for k in range(len(row))], "attended": [1] * len(row)} for row in ("ac", "abx", "aq")
    ]
    assert scored.facts(rows, [1, 1, 1]) == {"lines": 2, "scored": 3, "times": [2, 1, 0]}
