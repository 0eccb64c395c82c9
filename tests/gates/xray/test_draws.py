"""What a script's own loop draws, and rows that train other tokens."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import EOS, Line, Made, Model, events, lines, spread, write
from scenarios import LENGTHS, advantages, row_mean

from gates.xray import launch
from gates.xray.picture import Picture, read

CUT = (1, 6)  # rows that no closing token ended when they were drawn


def drawn(line: Line, *more: int) -> dict[str, Any]:
    """An event of a row as a loop drew it, with what it drew after the row's end."""
    return {"event": "drawn", "prompt": list(line.prompt), "completion": [*line.completion, *more], "update": 0}


def shown(folder: Path, rows: list[Line], sampled: Sequence[dict[str, Any]]) -> Picture:
    write(folder / "process-1", Made(Model.drawn(), rows, spread(rows, row_mean(rows, advantages()))))
    events(folder / "process-1", *sampled)
    return read(folder).updates[-1]


@pytest.mark.parametrize("event", ["drawn", "sampled"])
def test_a_closing_token_in_place_of_another(event: str, tmp_path: Path) -> None:
    """Samplers of libraries and the script's own loops alike."""
    rows = lines(LENGTHS)
    sampled = [drawn(line) | {"event": event} for line in rows]
    for index in CUT:
        sampled[index]["completion"][-1] = 7
    reading = shown(tmp_path, rows, sampled).of("forced end")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == ("attention", list(CUT))
    assert reading.sentence.startswith(
        "rows 2 and 7 end with a closing token that was not drawn: another token was drawn in"
    )


def test_answers_of_other_prompts(tmp_path: Path) -> None:
    """Three answers go one row on, over the border between prompts."""
    rows = lines(LENGTHS)
    sampled = [drawn(line, 9) for line in rows]
    answers = [list(line.completion) for line in rows]
    rows[3].completion, rows[4].completion = answers[4], answers[3]
    for line in rows:
        line.padding = max(LENGTHS) - line.length
    picture = shown(tmp_path, rows, sampled)
    reading = picture.of("other prompts")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == ("attention", [3, 4])
    assert picture.of("forced end") is None


@pytest.mark.parametrize("change", ["none", "one too many", "shorter", "longer", "unknown", "nothing"])
def test_own_rows_and_unknown_ones_are_not_blamed(change: str, tmp_path: Path) -> None:
    """A row may be cut, or go on with what a tool says; where one was not drawn at all, nothing is said of the others."""
    rows = lines(LENGTHS)
    sampled = [drawn(line, *([9] if change == "one too many" else [])) for line in rows]
    for index in CUT:
        completion = sampled[index]["completion"]
        if change == "shorter":
            completion += [8, 8, 8]
        elif change == "longer":
            del completion[2:]
        elif change == "unknown":
            completion[-1] = 7
    if change == "unknown":
        del sampled[3]
        sampled[2]["completion"][0] = 30
    picture = shown(tmp_path, rows, [] if change == "nothing" else sampled)
    assert [picture.of(name) for name in ("forced end", "other prompts")] == [None, None]


@pytest.fixture
def rows() -> tuple[Any, list[tuple[list[int], list[int]]]]:
    """The recorder's loop, and the rows that it writes."""
    spec = importlib.util.spec_from_file_location("draws", launch.RECORDER / "gates_xray_draws.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written: list[tuple[list[int], list[int]]] = []
    return module.Draws(lambda prompt, completion: written.append((prompt, completion))), written


def looped(draws: Any, *steps: tuple[list[list[int]], list[int]]) -> None:
    for given, tokens in steps:
        draws.given(given)
        draws.drew(tokens)


class TestRecorder:
    """Passes and draws in turn are the rows of a loop."""

    def test_a_row_that_ends_leaves_the_loop(self, rows: Any) -> None:
        """Its later tokens are hidden; the other's last token is in no pass."""
        draws, written = rows
        looped(draws, ([[4], [5]], [6, EOS]), ([[4, 6], [5, EOS]], [7, 8]), ([[4, 6, 7], [5, EOS]], [9, 9]))
        draws.flush()
        assert written == [([4], [6, 7, 9]), ([5], [EOS])]

    def test_a_pass_over_other_rows_ends_the_loop(self, rows: Any) -> None:
        draws, written = rows
        looped(draws, ([[4], [5]], [6, 7]), ([[8]], [9]))
        assert written == [([4], [6]), ([5], [7])]

    def test_a_token_that_a_script_replaces_is_kept(self, rows: Any) -> None:
        draws, written = rows
        looped(draws, ([[4]], [6]), ([[4, 6]], [7]))
        draws.given([[4, 6, EOS]])
        draws.flush()
        assert written == [([4], [6, 7])]

    def test_draws_without_a_pass_are_no_tokens(self, rows: Any) -> None:
        draws, written = rows
        draws.drew([3])
        draws.given([[4], [5]])
        draws.drew([3])
        draws.flush()
        assert written == []
