"""An update with its coefficients, given to the rows: who shares a token, where a completion begins, what a row weighs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from gates.model import Array
from gates.xray.fit import Fit, fit, quantile
from gates.xray.ranks import Row, Update

IGNORED = -100  # the label of a token that does not train, in transformers and its kin
EQUAL = 1e-5  # nats: two passes of one model in float32 over other batches differ by some 2e-6
PADDED = "trained model that attended to padding"  # a scorer whose pass took no attention mask
Begins = Literal["sampler", "labels", "coefficients", "unknown"]
State = Literal["trains", "still", "unknown", "no column"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row and what is known of its parts; positions count all tokens, padding included.

    Attributes:
        row: as recorded.
        begin: position of the first token of the completion; None where no token trains and nobody saw the prompt.
        begins: who says so.
        closing: position of the token that ends the completion, attended or not; None where it has none.
        after: attended positions behind the closing token, or what may be padding where neither mask nor end is known.
        truncated: whether the limit of the sampler ended it; None where that is not known.
    """

    row: Row
    begin: int | None
    begins: Begins
    closing: int | None
    after: Array
    truncated: bool | None

    @property
    def prompt(self) -> Array:
        """Attended positions before the completion that have a column."""
        return self._attended(0, self.begin or 0)

    @property
    def completion(self) -> Array:
        """Attended positions of the completion that have a column, without those behind its closing token."""
        if self.begin is None:
            return np.array([], dtype=np.int64)
        return np.setdiff1d(self._attended(self.begin, len(self.row.ids)), self.after)

    @property
    def hidden(self) -> bool:
        """Whether the attention mask hides the closing token."""
        return self.closing is not None and not self.row.attended[self.closing]

    def _attended(self, start: int, stop: int) -> Array:
        places = np.arange(start, stop)
        return places[self.row.attended[start:stop] & (self.row.columns[start:stop] >= 0)]


@dataclass(frozen=True)
class Step:
    """An update, its fit and its rows.

    Attributes:
        update: as recorded, over all ranks.
        fit: the coefficients of its columns.
        rows: in the order in which they were scored.
    """

    update: Update
    fit: Fit
    rows: tuple[StepRow, ...]

    @cached_property
    def users(self) -> list[tuple[int, ...]]:
        """The rows that each column is in."""
        users: list[list[int]] = [[] for _ in self.update.kinds]
        for index, row in enumerate(self.rows):
            for column in row.row.columns[row.row.columns >= 0]:
                users[int(column)].append(index)
        return [tuple(rows) for rows in users]

    @cached_property
    def alike(self) -> list[tuple[int, ...]]:
        """For each row, the rows with the same tokens, itself included."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for index, row in enumerate(self.rows):
            rows.setdefault(tuple(row.row.columns[row.row.columns >= 0].tolist()), []).append(index)
        return [tuple(rows[tuple(row.row.columns[row.row.columns >= 0].tolist())]) for row in self.rows]

    @cached_property
    def prompts(self) -> list[tuple[int, ...] | None]:
        """The tokens of each row's prompt; None where it is not known."""
        return [
            None
            if row.begin is None or row.begins == "coefficients"
            else tuple(np.array(row.row.ids)[: row.begin][row.row.attended[: row.begin]].tolist())
            for row in self.rows
        ]

    @cached_property
    def weights(self) -> Array:
        """The typical coefficient of each row's own completion tokens; 0 if none trains, NaN if it has none of its own."""
        return np.array([self._weight(index) for index in range(len(self.rows))])

    def own(self, index: int, positions: Array | None = None) -> Array:
        """Return the positions of a row's completion whose column no row with other tokens uses and that has a number."""
        row = self.rows[index]
        places = row.completion if positions is None else positions
        columns = row.row.columns[places]
        alone = np.array([set(self.users[int(c)]) <= set(self.alike[index]) for c in columns], dtype=bool)
        return places[alone & np.isfinite(self.fit.coefficients[columns])] if len(places) else places

    def of(self, index: int, positions: Array) -> tuple[Array, Array]:
        """Return the coefficients and errors at positions of a row, divided among the rows with the same tokens."""
        columns, count = self.rows[index].row.columns[positions], len(self.alike[index])
        return self.fit.coefficients[columns] / count, self.fit.errors[columns] / count

    def _weight(self, index: int) -> float:
        row = self.rows[index].row
        whole = np.flatnonzero(row.attended & (row.columns >= 0)) if self.rows[index].begin is None else None
        places = self.own(index, whole)
        if not len(places):
            return float("nan")
        values, errors = self.of(index, places)
        trains = np.abs(values) > quantile(len(values)) * errors
        return float(np.median(values[trains])) if trains.any() else 0.0

    def expected(self, column: int) -> float:
        """Return the sum of the weights of the rows that a column is in: its coefficient, if it trains as they do."""
        return float(sum(self.weights[index] for index in self.users[column]))

    def state(self, index: int, position: int) -> State:
        """Return whether a token trains; unknown where it would not show, since the weights of its rows cancel."""
        column = int(self.rows[index].row.columns[position])
        if column < 0:
            return "no column"
        if not np.isfinite(self.fit.coefficients[column]):
            return "unknown"
        room = quantile(len(self.update.kinds)) * self.fit.errors[column]
        if abs(self.fit.coefficients[column]) > room:
            return "trains"
        expected = self.expected(column)
        largest = max((abs(self.weights[k]) for k in self.users[column]), default=0.0)
        return "still" if abs(expected) > max(4 * room, 4 * self.fit.rounding * largest) else "unknown"

    def share(self, index: int) -> Array:
        """Return what each token of a row adds to the row's sum; NaN where it has no number.

        The coefficient of a token that several rows share is the sum over them. It is given to them by their weights where
        these add up to it, else in equal parts.
        """
        row = self.rows[index]
        values = np.full(len(row.row.ids), np.nan)
        for position in np.flatnonzero(row.row.columns >= 0):
            column = int(row.row.columns[position])
            coefficient, users = self.fit.coefficients[column], self.users[column]
            values[position] = coefficient / len(users)
            if set(users) <= set(self.alike[index]) or not row.row.attended[position]:
                continue
            if row.begin is not None and position >= row.begin:
                room = (
                    4
                    * quantile(len(self.update.kinds))
                    * (self.fit.errors[column] + self.fit.rounding * abs(coefficient))
                )
                if abs(self.expected(column) - coefficient) <= room:
                    values[position] = self.weights[index]
        return values


def step(update: Update, limit: int | None = None, before: Iterable[Update] = ()) -> Step:
    """Return an update with its coefficients and rows.

    Args:
        update: as recorded.
        limit: most tokens that the sampler was asked for.
        before: earlier updates of the recording.
    """
    solved = fit(update)
    ends = _ends(update)
    rows = _prompted(update.rows, [row for each in before for row in each.rows])
    return Step(update, solved, tuple(_row(row, solved, ends, update.document.special.pad, limit) for row in rows))


def _prompted(rows: Sequence[Row], before: Sequence[Row]) -> list[Row]:
    """Return the rows without prompts that are another row whole: a pass that scored that row ended there, no sampler's prompt."""
    attended = [tuple(np.array(row.ids)[row.attended].tolist()) for row in (*rows, *before)]
    wholes = set(attended)
    return [
        replace(row, prompt=None) if row.prompt is not None and ids[: row.prompt] in wholes else row
        for row, ids in zip(rows, attended[: len(rows)], strict=True)
    ]


def _ends(update: Update) -> frozenset[int]:
    """Return the ids that end a row: as recorded, else the last id of rows of different lengths."""
    if update.document.special.eos:
        return frozenset(update.document.special.eos)
    if not _masked(update):  # the last id of a row may be padding
        return frozenset()
    lasts: dict[int, set[int]] = {}
    counts: Counter[int] = Counter()
    for row in update.rows:
        places = np.flatnonzero(row.attended)
        if len(places):
            lasts.setdefault(row.ids[places[-1]], set()).add(len(places))
            counts[row.ids[places[-1]]] += 1
    common = [token for token, lengths in lasts.items() if len(lengths) >= 2 and 2 * counts[token] > len(update.rows)]
    return frozenset(common)


def _masked(update: Update) -> bool:
    """Return whether the script told what is padding: an attention mask hides it in some row."""
    return any(not row.attended.all() for row in update.rows)


def _row(row: Row, solved: Fit, ends: frozenset[int], pad: int | None, limit: int | None) -> StepRow:
    begin, begins = _begin(row, solved)
    closing, after = _closing(row, begin, ends, pad)
    if not ends and row.attended.all() and begin is not None:
        after = _trailing(row, begin, solved)
    elif closing is None and begin is not None and not len(after):
        after = _padding(row, begin, solved, pad)
    length = 0 if begin is None else int(row.attended[begin:].sum())
    truncated: bool | None = None
    if begin is not None and begins == "sampler" and (ends or limit is not None):
        whole = closing is not None if ends else limit is not None and length < limit
        if whole or limit is None or length <= limit:  # a longer row is not what the sampler returned
            truncated = not whole and (limit is None or length == limit)
    return StepRow(row, begin, begins, closing, after, truncated)


def _trailing(row: Row, begin: int, solved: Fit) -> Array:
    """Return the positions behind the last token that trains; where nobody says what is padding, they may be it."""
    places = np.arange(begin, len(row.ids))
    places = places[row.columns[places] >= 0]
    columns = row.columns[places]
    trains = places[~(solved.zero(columns) | np.isnan(solved.coefficients[columns]))]
    return places[places > trains[-1]] if len(trains) else np.array([], dtype=np.int64)


def _padding(row: Row, begin: int, solved: Fit, pad: int | None) -> Array:
    """Return the last position of a row whose token is the padding and does not train: one such token may be a sampled one."""
    last = int(np.flatnonzero(row.attended)[-1])
    column = int(row.columns[last])
    untrained = column >= 0 and bool(solved.zero(np.array([column]))[0])
    return np.array([last] if last > begin and row.ids[last] == pad and untrained else [], dtype=np.int64)


def _begin(row: Row, solved: Fit) -> tuple[int | None, Begins]:
    places = np.flatnonzero(row.attended)
    if row.prompt is not None and row.prompt < len(places):
        return int(places[row.prompt]), "sampler"
    if row.labels is not None:
        labelled = [int(k) for k in places if row.labels[k] != IGNORED]
        if labelled:
            return labelled[0], "labels"
    with_column = places[row.columns[places] >= 0]
    columns = row.columns[with_column]
    if len(columns):
        trains = with_column[~(solved.zero(columns) | np.isnan(solved.coefficients[columns]))]
        if len(trains):
            return int(trains[0]), "coefficients"
    return None, "unknown"


def _closing(row: Row, begin: int | None, ends: frozenset[int], pad: int | None) -> tuple[int | None, Array]:
    """Return the position of the token that ends a completion, and the attended positions behind it."""
    nothing = np.array([], dtype=np.int64)
    places = np.flatnonzero(row.attended)
    if begin is None or not len(places) or not ends:
        return None, nothing
    filling = ends | ({pad} if pad is not None else frozenset())
    last = int(places[-1])
    trailing: list[int] = []
    for position in places[::-1]:
        if row.ids[position] not in filling or position < begin:
            break
        trailing.append(int(position))
    closers = [position for position in sorted(trailing) if row.ids[position] in ends]
    if closers:
        after = np.array([position for position in sorted(trailing) if position > closers[0]], dtype=np.int64)
        return closers[0], after
    if last + 1 < len(row.ids) and row.ids[last + 1] in ends and row.columns[last + 1] >= 0:
        return last + 1, nothing
    return None, nothing


def shared(rows: Sequence[tuple[int, ...] | None]) -> dict[tuple[int, ...], list[int]]:
    """Return the rows of each prompt."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(rows):
        if prompt is not None:
            groups.setdefault(prompt, []).append(index)
    return groups
