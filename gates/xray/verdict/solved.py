"""The advantages that the coefficients have, where a definition gives them but for its advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gates.model import Array
from gates.xray.reading.words import number, some
from gates.xray.verdict.definitions import Definition
from gates.xray.verdict.prediction import Predictor
from gates.xray.verdict.rewards import Advantages

FEWEST = 2  # tokens a row beyond which a weight for each row is not free


def other_advantages(predictor: Predictor, definitions: Sequence[Definition]) -> tuple[Definition, Array] | None:
    """Return the first definition that gives the coefficients with some advantage for each row, and these advantages."""
    rows = len(predictor.inputs.mask)
    if predictor.inputs.mask.sum() < FEWEST * rows:
        return None
    for definition in definitions:
        values = _solved(predictor, definition)
        if values is None:
            continue
        solved = replace(definition, advantages=Advantages("", values, {}))
        if predictor.misfit(solved) <= 1.0:
            return solved, values
    return None


def words_of(values: Array, asked: Array, rooms: float = 1e-3) -> str:
    """Return the rows whose advantage is another one, with both numbers; or that negative ones are left out."""
    room = rooms * np.abs(asked).max(initial=0.0)
    if (asked < -room).any() and (np.abs(values - np.maximum(asked, 0.0)) <= room).all():
        return "the loss as asked, with negative advantages set to 0"
    off = np.flatnonzero(np.abs(values - asked) > room)
    listed = [f"{number(values[row])} in row {row + 1} (asked: {number(asked[row])})" for row in off]
    return f"the loss as asked, with other advantages: {some(listed, 2)}"


def _solved(predictor: Predictor, definition: Definition) -> Array | None:
    """Return the advantages of least squares, each on the side of a bound that its sign gives."""
    measured = predictor.measured
    rows = len(predictor.inputs.mask)
    nothing = predictor.of(replace(definition, advantages=Advantages("", np.zeros(rows), {})))
    if nothing is None:
        return None
    left, columns, signs = measured.values - nothing[0], [], []
    for row in range(rows):
        sides = []
        for sign in (1.0, -1.0):
            one = np.zeros(rows)
            one[row] = sign
            side = predictor.of(replace(definition, advantages=Advantages("", one, {})))
            if side is None:
                return None
            sides.append((side[0] - nothing[0]) / measured.limits)
        towards = [float((left / measured.limits) @ side) for side in sides]
        best = int(towards[1] > towards[0])
        columns.append(sides[best])
        signs.append((1.0, -1.0)[best])
    sizes = np.linalg.lstsq(np.stack(columns, axis=1), left / measured.limits, rcond=None)[0]
    return np.asarray(sizes * np.array(signs))
