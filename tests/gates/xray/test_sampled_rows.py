"""Which tokens of sampled rows train: the first ones alone, or tokens that no sampler drew."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import EOS, Line, Made, Model, events, generated, lines, write
from scenarios import LENGTHS, advantages, row_mean

from gates.xray.picture import Picture, read

CUT = (1, 3, 6)  # rows that the tests change
ANSWER = [3, 4, 3]  # of a tool


def event(prompt: Sequence[int], completion: Sequence[int]) -> dict[str, Any]:
    return {
        "event": "sampled",
        "prompt": list(prompt),
        "completion": list(completion),
        "text": None,
        "update": 0,
    }


def shown(folder: Path, rows: list[Line], sampled: list[dict[str, Any]], trained: list[list[float]]) -> Picture:
    """One update of rows whose completions train where `trained` says so."""
    weights = row_mean(rows, advantages())
    coefficients = [
        np.array(
            [0.0] * len(line.prompt) + [weight * each for each in trains] + [0.0] * (line.padding + len(line.tail))
        )
        for line, weight, trains in zip(rows, weights, trained, strict=True)
    ]
    write(folder / "process-1", Made(Model.drawn(), rows, coefficients))
    events(folder / "process-1", generated(max_new_tokens=12), *sampled)
    return read(folder).updates[-1]


def shortened(folder: Path, kept: dict[int, int], *, ends: bool = True, hidden: bool = True) -> Picture:
    """Rows of which the first tokens train, in some; the mask hides the others, or the loss leaves them out."""
    rows = lines(LENGTHS)
    for index in kept:
        rows[index].completion[-1] = EOS if ends else 7
    sampled = [event(line.prompt, line.completion) for line in rows]
    trained = [[1.0] * line.length for line in rows]
    for index, count in kept.items():
        line = rows[index]
        if hidden:
            line.tail, line.completion, line.padding = line.completion[count:], line.completion[:count], 0
            trained[index] = [1.0] * count
        else:
            trained[index] = [1.0] * count + [0.0] * (line.length - count)
    return shown(folder, rows, sampled, trained)


@pytest.mark.parametrize("hidden", [True, False])
def test_rows_of_which_the_first_token_trains(hidden: bool, tmp_path: Path) -> None:
    reading = shortened(tmp_path, dict.fromkeys(CUT, 1), ends=False, hidden=hidden).of("cut short")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == ("attention", list(CUT))
    assert reading.sentence.startswith("rows 2, 4 and 7 train the first tokens alone of those that were sampled, ")
    assert reading.sentence.endswith("in all rows that no closing token ends")


def test_one_row_of_which_the_first_token_trains(tmp_path: Path) -> None:
    reading = shortened(tmp_path, {3: 1}).of("cut short")
    assert reading is not None
    assert reading.kind == "attention"
    assert reading.sentence.startswith(f"row 4 trains the first token alone of {LENGTHS[3]} that were sampled")


def test_a_limit_on_length_may_be_meant(tmp_path: Path) -> None:
    """All rows that are longer train their first four tokens."""
    kept = {index: 4 for index, length in enumerate(LENGTHS) if length > 4}
    reading = shortened(tmp_path, kept).of("cut short")
    assert reading is not None
    assert (reading.kind, reading.sentence.endswith("as where a limit on length cuts")) == ("read", True)


def test_a_stop_string_may_be_meant(tmp_path: Path) -> None:
    """Two rows end with a token of their own; the last of the others is not it."""
    rows = lines(LENGTHS)
    sampled = [event(line.prompt, line.completion) for line in rows]
    for index, count in ((1, 2), (3, 3)):
        line = rows[index]
        sampled[index]["completion"][count - 1] = 9
        line.completion = sampled[index]["completion"][:count]
    picture = shown(tmp_path, rows, sampled, [[1.0] * line.length for line in rows])
    reading = picture.of("cut short")
    assert reading is not None
    assert (reading.kind, reading.sentence.endswith("as where a stop string cuts")) == ("read", True)


def test_whole_rows_and_missing_closing_tokens_are_not_cut(tmp_path: Path) -> None:
    """Another reading says that a closing token does not train."""
    assert shortened(tmp_path / "whole", {}).of("cut short") is None
    kept = {index: length - 1 for index, length in enumerate(LENGTHS)}
    assert shortened(tmp_path / "closing", kept).of("cut short") is None


def answered(folder: Path, *, masked: bool) -> Picture:
    """Three rows have the answer of a tool behind what was drawn first, and a second turn."""
    rows = lines(LENGTHS)
    sampled = [event(line.prompt, line.completion) for line in rows]
    trained = [[1.0] * line.length for line in rows]
    for index in CUT:
        line, turn = rows[index], [8 + index, 12, EOS]
        sampled.append(event([*line.prompt, *line.completion, *ANSWER], turn))
        trained[index] += [0.0 if masked else 1.0] * len(ANSWER) + [1.0] * len(turn)
        line.completion = [*line.completion, *ANSWER, *turn]
    for line in rows:
        line.padding = max(each.length for each in rows) - line.length
    return shown(folder, rows, sampled, trained)


def test_tokens_that_the_sampler_was_given(tmp_path: Path) -> None:
    reading = answered(tmp_path, masked=False).of("given tokens")
    assert reading is not None
    assert reading.kind == "attention"
    assert len(reading.numbers["at"]) == len(ANSWER) * len(CUT)
    assert f"train: {len(ANSWER) * len(CUT)} inside of completions, in rows 2, 4 and 7" in reading.sentence


def test_masked_answers_are_not_complained_of(tmp_path: Path) -> None:
    """They are no tokens of a completion that a mask left out."""
    picture = answered(tmp_path, masked=True)
    assert [picture.of(name) and picture.of(name).kind for name in ("given tokens", "completion")] == ["read", "read"]  # type: ignore[union-attr]
