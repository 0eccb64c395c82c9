"""What reports show of a row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gates.xray.fit import quantile
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import number
from gates.xray.step import Step, StepRow

Ground = Literal["up", "down", "still", "none", "hidden"]
LEVELS = 6  # strengths of colour
TOPICS = {  # of readings, in the order in which they are shown
    "rows": ("objective", "several texts", "between rows", "reference", "truncated", "duplicates"),
    "tokens": (
        "shift",
        "mask",
        "prompt",
        "completion",
        "cut short",
        "given tokens",
        "first token",
        "closing token",
        "endings",
        "after the end",
        "padding",
        "within rows",
    ),
    "ratio, KL": ("second update", "ratio", "clip of the ratio", "KL"),
    "gradient": (
        "explained",
        "the entropy",
        "the KL over the vocabulary",
        "the router's loss",
        "outside",
        "parameters",
        "clip of the norm",
    ),
    "optimizer": ("update", "state", "moved"),
    "sampling": ("sampling", "sampled tokens", "temperature"),
}


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token of a row.

    Attributes:
        number: in the row, from 1.
        text: a piece of text, or the id.
        ground: pushed up or down, still, without a number, or hidden by the attention mask.
        level: 1 to 6, the strength of its colour, by its part of the largest coefficient; 0: no colour.
        value: its part of the coefficient; None without a number.
        error: standard error.
        shared: rows that share it.
        count: tokens that it stands for, where hidden ones are shown together.
    """

    number: int
    text: str
    ground: Ground
    level: int
    value: float | None
    error: float | None
    shared: tuple[int, ...]
    count: int = 1

    @property
    def title(self) -> str:
        """The number in words."""
        where = f"token {self.number}"
        if self.ground == "hidden":
            several = f"{self.count} tokens from {self.number} on" if self.count > 1 else where
            return f"{several}: hidden by the attention mask"
        if self.value is None:
            return f"{where}: no number"
        way = {"up": "pushed up", "down": "pushed down"}.get(self.ground, "does not train")
        value = f"{number(self.value, 6)} ± {number(self.error or 0.0, 2)}, {way}"
        rows = f"; shared by {len(self.shared)} rows" if len(self.shared) > 1 else ""
        return f"{where}: {value}{rows}"


def without_runs(tokens: Sequence[ShownToken]) -> list[ShownToken]:
    """Return the tokens, with equal ones in a row that the attention mask hides as one."""
    shorter: list[ShownToken] = []
    for token in tokens:
        last = shorter[-1] if shorter else None
        if last is not None and token.ground == last.ground == "hidden" and token.text == last.text:
            shorter[-1] = dataclasses.replace(last, count=last.count + 1)
        else:
            shorter.append(token)
    return shorter


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row.

    Attributes:
        number: from 1.
        row: with positions.
        tokens: all of them.
        length: tokens of the completion.
        start: number of the first token that trains, from 1; None where none does.
        total: sum of the parts.
        least, largest: of the completion's own trained tokens, one number where they are equal within their errors; None where
            there is none.
        marks: whether first, last and closing token train: "✓", "–", "?", or " " where there is none.
    """

    number: int
    row: StepRow
    tokens: Sequence[ShownToken]
    length: int
    start: int | None
    total: float
    least: float | None
    largest: float | None
    marks: tuple[str, str, str]

    @property
    def pushed(self) -> str:
        """Direction of the sum: a positive coefficient pushes down."""
        if self.least is None:
            return "still" if self.start is None else "mixed"
        return "up" if self.largest is not None and self.largest < 0 else "down" if self.least > 0 else "mixed"


def by_topic(readings: Sequence[Reading]) -> list[tuple[str, list[Reading]]]:
    """Return what was read, by topic."""
    calm = [reading for reading in readings if reading.kind == "read"]
    topics = [(topic, [reading for reading in calm if reading.name in names]) for topic, names in TOPICS.items()]
    return [(topic, members) for topic, members in topics if members]


def shown(step: Step) -> list[ShownRow]:
    """Return the rows of an update."""
    largest = max((float(np.nanmax(np.abs(step.share(i)), initial=0.0)) for i in range(len(step.rows))), default=0.0)
    return [_row(step, index, largest) for index in range(len(step.rows))]


def _row(step: Step, index: int, largest: float) -> ShownRow:
    row = step.rows[index]
    parts = step.share(index)
    tokens = [_token(step, index, position, float(parts[position]), largest) for position in range(len(row.row.ids))]
    training = [token.number for token in tokens if token.ground in {"up", "down"}]
    own = [tokens[int(position)] for position in step.own(index)]
    values = [token.value for token in own if token.ground in {"up", "down"} and token.value is not None]
    errors = [token.error or 0.0 for token in own]
    if values and max(values) - min(values) <= 2 * quantile(len(values)) * max(errors):
        values = [float(np.median(values))]
    completion = row.completion
    ends = (
        row.begin,
        int(completion[-1]) if len(completion) else None,
        row.closing,
    )
    return ShownRow(
        number=index + 1,
        row=row,
        tokens=tokens,
        length=len(completion),
        start=min(training, default=None),
        total=float(np.nansum(parts)),
        least=min(values, default=None),
        largest=max(values, default=None),
        marks=(_mark(step, index, ends[0]), _mark(step, index, ends[1]), _mark(step, index, ends[2])),
    )


def _mark(step: Step, index: int, position: int | None) -> str:
    if position is None:
        return " "
    return {"trains": "✓", "still": "–", "unknown": "?", "no column": "–"}[step.state(index, position)]


def _token(step: Step, index: int, position: int, part: float, largest: float) -> ShownToken:
    row = step.rows[index].row
    column = int(row.columns[position])
    text = str(row.ids[position]) if row.text is None else row.text[position]
    users = step.users[column] if column >= 0 else ()
    if column < 0 or not math.isfinite(part):
        ground: Ground = "none" if row.attended[position] else "hidden"
        return ShownToken(position + 1, text, ground, 0, None, None, users)
    error = float(step.fit.errors[column]) / max(1, len(users))
    trains = abs(step.fit.coefficients[column]) > quantile(len(step.update.kinds)) * step.fit.errors[column]
    level = max(1, math.ceil(LEVELS * (abs(part) / largest) ** 0.5)) if trains and largest and part else 0
    if not row.attended[position] and not trains:
        return ShownToken(position + 1, text, "hidden", 0, part, error, users)
    ground = ("up" if part < 0 else "down") if level else "still"
    return ShownToken(position + 1, text, ground, min(level, LEVELS), part, error, users)
