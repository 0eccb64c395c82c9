"""Rows that are compared with the tokens that a sampler drew."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import EOS, Line, Made, Model, events, generated, lines, spread, write
from scenarios import LENGTHS, advantages, row_mean

from gates.xray.picture import Picture, read

CHANGED = (1, 4, 6)  # rows that the tests change


def drawn(line: Line, **changes: Any) -> dict[str, Any]:
    """An event of a row as it was sampled; its text is that of the row unless it is changed."""
    text = "".join(f" w{token}" for token in line.completion if token != EOS)
    return {
        "event": "sampled",
        "prompt": list(line.prompt),
        "completion": list(line.completion),
        "text": text,
        "update": 0,
        **changes,
    }


def shown(folder: Path, rows: Sequence[Line], sampled: Sequence[dict[str, Any]], limit: int = 12) -> Picture:
    """One update of rows, after a call of `generate` with these sampled rows."""
    write(folder / "process-1", Made(Model.drawn(), list(rows), spread(rows, row_mean(rows, advantages()))))
    events(folder / "process-1", generated(max_new_tokens=limit), *sampled)
    return read(folder).updates[-1]


def split(line: Line, place: int) -> list[int]:
    """A completion whose token at a place is two others, as a sampler may draw what a tokenizer writes as one."""
    return [*line.completion[:place], 3, 3, *line.completion[place + 1 :]]


def said(picture: Picture) -> str | None:
    reading = picture.of("sampled tokens")
    return reading and reading.sentence


def test_rows_that_were_encoded_again_are_counted(tmp_path: Path) -> None:
    """Three rows have the text of their sampled tokens and other tokens; the first differs at its second sampled one."""
    rows = lines(LENGTHS)
    sampled = [
        drawn(line, **({"completion": split(line, 1)} if index in CHANGED else {})) for index, line in enumerate(rows)
    ]
    picture = shown(tmp_path, rows, sampled)
    first = len(rows[1].prompt) + 2
    assert said(picture) == (
        f"3 of 8 rows train other tokens than were sampled, first at token {first} of row 2: "
        "the text was probably decoded and encoded again"
    )
    reading = picture.of("sampled tokens")
    assert reading is not None
    assert (reading.kind, reading.numbers["rows"]) == ("attention", list(CHANGED))


@pytest.mark.parametrize(
    "changes",
    [{"completion": [3, 3, EOS], "text": "No"}, {"prompt": [4], "completion": [3, EOS], "text": None}],
    ids=["another completion", "another prompt"],
)
def test_rows_that_nobody_sampled_are_not_compared(changes: dict[str, Any], tmp_path: Path) -> None:
    """Rows of a data set may have the prompts of a sampler; their text tells."""
    rows = lines(LENGTHS)
    assert said(shown(tmp_path, rows, [drawn(line, **changes) for line in rows])) is None


@pytest.mark.parametrize("change", ["as sampled", "cut", "ended by the script", "with the answer of a tool"])
def test_sampled_rows_are_not_named(change: str, tmp_path: Path) -> None:
    """Scripts cut completions, put a closing token behind them, or go on with what no sampler drew."""
    rows = lines(LENGTHS)
    completions = {
        "as sampled": [line.completion for line in rows],
        "cut": [[*line.completion[:-1], 3, 4, EOS] for line in rows],
        "ended by the script": [line.completion[:-1] for line in rows],
        "with the answer of a tool": [line.completion[:2] for line in rows],
    }[change]
    sampled = [drawn(line, completion=tokens) for line, tokens in zip(rows, completions, strict=True)]
    assert said(shown(tmp_path, rows, sampled)) is None


def test_a_row_without_weight_trains_nothing(tmp_path: Path) -> None:
    rows = lines(LENGTHS)
    weights = row_mean(rows, advantages())
    weights[1] = 0.0
    write(tmp_path / "process-1", Made(Model.drawn(), rows, spread(rows, weights)))
    changed = [drawn(line, completion=split(line, 1)) if index == 1 else drawn(line) for index, line in enumerate(rows)]
    events(tmp_path / "process-1", generated(), *changed)
    assert said(read(tmp_path).updates[-1]) is None


def test_a_row_that_is_longer_than_the_limit_was_not_cut_off(tmp_path: Path) -> None:
    """Texts that are encoded again may have more tokens than the sampler was asked for; a row of that many was cut."""
    rows = lines((12, 9, 6, 4, 8, 6, 5, 4))
    rows[0].completion[-1] = rows[1].completion[-1] = 7
    picture = shown(tmp_path, rows, [], limit=9)
    truncated = picture.of("truncated")
    assert truncated is not None
    assert truncated.numbers["rows"] == [1]
