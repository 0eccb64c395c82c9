"""Whether the tokens of completions that do not train stand at regular places, as at the borders of steps in which rows are scored."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gates.xray.reading import trains
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import some
from gates.xray.step import StepRow

LEAST = 3  # tokens that do not train, at two places at least: so many may be regular by chance
STEPS = range(2, 513)  # that are tried
REMEDY = "let the steps in which rows are scored overlap by one token: the last of one is the first of the next"


def readings(context: Context) -> list[Reading]:
    """Return the regular places of the tokens that do not train."""
    completion = trains.completion(context)
    still = [] if completion is None else [tuple(pair) for pair in completion.numbers.get("still_at", [])]
    if len(still) < LEAST:
        return []
    for where, place in (("rows", _in_row), ("completions", _in_completion)):
        places = {pair: place(context.step.rows[pair[0]], pair[1]) for pair in _trained(context)}
        apart = {pair: place(context.step.rows[pair[0]], pair[1]) for pair in still}
        if (step := _step(set(apart.values()), set(places.values()))) is None:
            continue
        numbers = sorted({number + 1 for number in apart.values()})
        sentence = (
            f"the tokens inside of completions that do not train stand at regular places, one in {step}: at {some(numbers)} of {where}, "
            f"as where rows are scored in steps of {step} that do not overlap"
        )
        because = "every other token of these completions trains, and none at these places"
        return [Reading("regular places", "attention", sentence, because, REMEDY, {"step": step, "at": numbers})]
    return []


def _step(still: set[int], trained: set[int]) -> int | None:
    """Return the distance between places that do not train, where no token at any such place does."""
    if len(still) < 2:
        return None
    step = int(np.gcd.reduce(np.diff(sorted(still))))
    rest = min(still) % step
    return step if step in STEPS and not any(place % step == rest for place in trained) else None


def _trained(context: Context) -> Iterator[tuple[int, int]]:
    """Yield row and position of the tokens inside of completions that train."""
    for index in trains.weighty(context):
        row = context.step.rows[index]
        for position in row.completion:
            if position not in {row.closing, row.begin} and trains.state(context, index, int(position)) == "trains":
                yield index, int(position)


def _in_row(row: StepRow, position: int) -> int:
    return int(row.row.attended[:position].sum())


def _in_completion(row: StepRow, position: int) -> int:
    return _in_row(row, position) - _in_row(row, row.begin or 0)
