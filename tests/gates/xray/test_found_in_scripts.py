"""Mistakes of training scripts that other people wrote (tests/training): what is said of each, and of what is not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Line, Made, Model, events, generated, lines, spread, write
from scenarios import GROUP, LENGTHS, advantages, grpo, picture, row_mean, second

from gates.xray.picture import Picture, read
from gates.xray.verdict import Verdict

DR_GRPO = {
    "algorithm": "dr_grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "beta": 0.0,
    "scale": "none",
    "baseline": "mean",
}
REWARDS = np.random.default_rng(3).normal(size=8)
CENTRED = (REWARDS.reshape(2, GROUP) - REWARDS.reshape(2, GROUP).mean(axis=1, keepdims=True)).ravel()


def verdict(folder: Path, made: Made, settings: dict[str, Any], *more: dict[str, Any]) -> Verdict:
    """Return the verdict on the loss of an update whose rewards and settings are noted."""
    note = {"rewards": REWARDS.tolist(), "groups": [0] * GROUP + [1] * GROUP, "settings": settings}
    write(folder / "process-1", made)
    events(folder / "process-1", generated(max_new_tokens=None), {"event": "note", "update": 0, **note}, *more)
    return read(folder).updates[-1].verdicts[-1]


def sentence(shown: Picture, name: str) -> tuple[str, str]:
    """Return kind and sentence of a reading."""
    reading = shown.of(name)
    assert reading is not None, [each.name for each in shown.readings]
    return reading.kind, reading.sentence


def test_a_gradient_that_was_not_reset(tmp_path: Path) -> None:
    """The second update's gradient holds the first one's, which other weights have given."""
    first, later = second(lines(LENGTHS, GROUP), advantages(), bounds=(0.8, 1.2))
    write(tmp_path / "process-1", first)
    write(tmp_path / "process-1", later, gradient=later.gradient() + 0.7 * first.gradient())
    events(tmp_path / "process-1", generated(), updates=2)
    kind, said = sentence(read(tmp_path).updates[-1], "explained")
    assert kind == "attention"
    assert said.endswith("it is 0.7 times the gradient of update 1, which was not reset")


def test_a_clip_of_each_pass(tmp_path: Path) -> None:
    """Four passes and four clips: nothing can be said of coefficients that are scaled pass by pass."""
    made = grpo()
    made.call = 2
    made.document["clip"] = {"norm": 3.0, "limit": 1.0}
    clips = [{"event": "clip", "update": 0, "norm": 3.0, "limit": 1.0} for _ in range(4)]
    found = verdict(tmp_path, made, DR_GRPO, *clips)
    assert (found.status, "clipped 4 times" in found.sentence) == ("cannot tell", True)
    assert sentence(read(tmp_path).updates[-1], "clip of the norm")[0] == "attention"


def test_much_that_is_unexplained_is_not_judged(tmp_path: Path) -> None:
    made = grpo()
    noise = np.random.default_rng(0).normal(size=len(made.gradient())) * np.linalg.norm(made.gradient()) / 100.0
    write(tmp_path / "process-1", made, gradient=made.gradient() + noise)
    note = {"rewards": REWARDS.tolist(), "groups": [0] * GROUP + [1] * GROUP, "settings": DR_GRPO}
    events(tmp_path / "process-1", generated(), {"event": "note", "update": 0, **note})
    shown = read(tmp_path).updates[-1]
    found = shown.verdicts[-1]
    assert (found.status, "is not that of the rows' log-probs" in found.sentence) == ("cannot tell", True)
    assert {"explained", "update"} <= {each.name for each in shown.readings}
    assert not {"objective", "prompt", "completion", "within rows"} & {each.name for each in shown.readings}


@pytest.mark.parametrize(
    ("mean", "words"),
    [("first", "the first token of each completion is left out"), ("positive", "negative advantages set to 0")],
)
def test_a_length_that_nobody_says(mean: str, words: str, tmp_path: Path) -> None:
    """L_max is that of the longest completion, which its limit ended."""
    rows = lines(LENGTHS, GROUP)
    rows[2].completion[-1] = 7
    values = np.maximum(CENTRED, 0.0) if mean == "positive" else CENTRED
    coefficients = spread(rows, -values / (len(rows) * max(LENGTHS)))
    if mean == "first":
        for line, row in zip(rows, coefficients, strict=True):
            row[len(line.prompt)] = 0.0
    found = verdict(tmp_path, Made(Model.drawn(), rows, coefficients), DR_GRPO)
    assert found.status == "wrong"
    assert words in found.computes or "A < 0 left out" in found.computes, found


def test_a_mean_of_micro_batches_instead_of_a_constant(tmp_path: Path) -> None:
    """What is to be noted holds a list, the rows of each micro-batch."""
    rows = lines(LENGTHS, GROUP)
    counts = np.array([line.length for line in rows]).reshape(2, GROUP).sum(axis=1)
    made = Made(Model.drawn(), rows, spread(rows, -CENTRED / np.repeat(counts, GROUP) / 2.0))
    made.call = GROUP
    found = verdict(tmp_path, made, DR_GRPO)
    assert (found.status, "token mean of each micro-batch" in found.computes) == ("differs", True), found


@pytest.mark.parametrize(("again", "status"), [(True, "correct"), (False, "differs")])
def test_a_row_that_is_sampled_once_more_is_no_row_of_before(again: bool, status: str, tmp_path: Path) -> None:
    """Its old log-probs are the policy's where a rollout came between; else the ratio is to those of update 1."""
    first, later = second(lines(LENGTHS, GROUP), CENTRED, ratio="none")
    write(tmp_path / "process-1", first)
    write(tmp_path / "process-1", later)
    settings = {**DR_GRPO, "algorithm": "grpo"}
    note = {"rewards": REWARDS.tolist(), "groups": [0] * GROUP + [1] * GROUP, "settings": settings}
    notes = [{"event": "note", "update": update, **note} for update in (0, 1)]
    sampled = [generated(), *([{**generated(), "update": 1}] if again else [])]
    events(tmp_path / "process-1", *sampled, *notes, updates=2)
    assert read(tmp_path).updates[-1].verdicts[-1].status == status


def test_truncated_rows_beside_others_without_weight_are_not_blamed(tmp_path: Path) -> None:
    """Rows without an advantage train in no case, whether they end or not."""
    rows: list[Line] = lines((12, 12, 9, 6, 4, 8, 6, 5))
    rows[0].completion[-1] = rows[1].completion[-1] = 7
    weights = row_mean(rows, advantages()) * np.array([1, 0, 1, 1, 0, 1, 1, 1])
    kind, said = sentence(picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights))), "truncated")
    assert (kind, said) == ("cannot tell", "rows 1 and 2 were cut off by the limit of tokens; row 2 has no weight")


@pytest.mark.parametrize(("advantage", "kind"), [(0.0, "cannot tell"), (0.6, "attention")])
def test_a_truncated_row_whose_advantage_is_0_is_not_masked(advantage: float, kind: str, tmp_path: Path) -> None:
    """The other rows of its prompt sum to 0 without it."""
    rows: list[Line] = lines((12, 12, 9, 6, 4, 8, 6, 5))
    rows[0].completion[-1] = rows[1].completion[-1] = 7
    others = np.array([0.5, 0.0, -0.8, 0.3]) - np.array([advantage / 3, 0.0, advantage / 3, advantage / 3])
    weights = row_mean(rows, np.concatenate([others, advantages()[4:]]))
    got, _ = sentence(picture(tmp_path, Made(Model.drawn(), rows, spread(rows, weights))), "truncated")
    assert got == kind


def test_a_completion_that_the_mask_hides_is_assigned(tmp_path: Path) -> None:
    """TRL hides truncated rows that are left out; their tokens in the divisor are a factor with a name."""
    rows = lines(LENGTHS, GROUP)
    rows[2] = Line(rows[2].prompt, [], padding=0)
    hidden = [8, 9, 7, 6, 5]
    count = sum(line.length for line in rows)
    coefficients = spread(rows, -CENTRED / (count + len(hidden)))
    coefficients[2] = np.concatenate([coefficients[2], np.zeros(len(hidden))])
    made = Made(Model.drawn(), rows, coefficients)
    ids = [hidden if k == 2 else line.completion for k, line in enumerate(rows)]
    rows[2].tail = hidden
    settings = {**DR_GRPO, "algorithm": "dapo", "dapo_denominator": "global"}
    note = {"rewards": REWARDS.tolist(), "groups": [0] * GROUP + [1] * GROUP, "settings": settings, "ids": ids}
    write(tmp_path / "process-1", made)
    events(tmp_path / "process-1", generated(), {"event": "note", "update": 0, **note})
    found = read(tmp_path).updates[-1].verdicts[-1]
    assert (found.status, "rows that are left out count in the divisor" in found.sentence) == ("cannot tell", True), (
        found
    )
