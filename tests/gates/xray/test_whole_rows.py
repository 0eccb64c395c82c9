"""Rows that are averaged over their prompt and completion together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import GROUP, LENGTHS, advantages, picture

from gates.xray.picture import Picture


def shown(folder: Path, rows: Sequence[Line], missing: int = 0, *, prompts: bool = False) -> Picture:
    """GRPO whose rows are divided by the tokens of prompt and completion, less some."""
    divisors = [len(line.prompt) + line.length - missing for line in rows]
    weights = [-a / divisor / len(rows) for a, divisor in zip(advantages(), divisors, strict=True)]
    coefficients = spread(rows, weights)
    for line, values, weight in zip(rows, coefficients, weights, strict=True):
        values[: len(line.prompt)] = weight * prompts
    return picture(folder, Made(Model.drawn(), list(rows), coefficients))


@pytest.mark.parametrize("missing", [0, 1])
def test_a_mean_over_prompt_and_completion(missing: int, tmp_path: Path) -> None:
    """The attention mask is the divisor, or that of the scores, which are one fewer."""
    reading = shown(tmp_path, lines(LENGTHS, GROUP), missing).of("between rows")
    assert reading is not None
    assert (reading.kind, "over its prompt and its completion" in reading.sentence) == ("attention", True)


def test_prompts_of_one_length_are_a_constant_where_completions_are(tmp_path: Path) -> None:
    reading = shown(tmp_path, lines((6,) * 8, GROUP)).of("between rows")
    assert reading is not None
    assert (reading.kind, "look alike" in reading.sentence) == ("cannot tell", True)


def test_a_mean_over_all_that_trains_is_no_other_divisor(tmp_path: Path) -> None:
    reading = shown(tmp_path, lines(LENGTHS, GROUP), prompts=True).of("between rows")
    assert reading is None or reading.kind != "attention"


def test_lengths_of_no_part_of_a_row(tmp_path: Path) -> None:
    reading = shown(tmp_path, lines(LENGTHS, GROUP), missing=3).of("between rows")
    assert reading is not None
    assert (reading.kind, np.isfinite(reading.numbers["weights"]).all()) == ("cannot tell", True)
