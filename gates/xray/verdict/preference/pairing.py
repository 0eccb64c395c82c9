"""Which rows of an update are a pair, and which of them is the chosen one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gates.model import Array
from gates.xray.reading.context import Context
from gates.xray.reading.pairs import partners, prefix
from gates.xray.reading.words import plural
from gates.xray.verdict.notes import Note
from gates.xray.verdict.unmatched import UnmatchedError

GROUPS = "note `groups`, the pair of each row, and `chosen`"
CHOSEN = "note `chosen`, whether each row is the chosen one of its pair"
Pair = tuple[int, int]  # places among the rows of the note


@dataclass(frozen=True)
class Pairs:
    """The pairs of an update.

    Attributes:
        pairs: the chosen and the rejected row of each.
        noted: whether the note says which is chosen; else the coefficients do.
    """

    pairs: tuple[Pair, ...]
    noted: bool

    @property
    def order(self) -> list[int]:
        """The rows in turn, a chosen and a rejected one."""
        return [row for pair in self.pairs for row in pair]


def pairs_of(context: Context, note: Note) -> Pairs:
    """Return the pairs of the noted rows.

    Raises:
        UnmatchedError: the pairs are not known, or which of them is chosen.
    """
    chosen = None if note.chosen is None else note.chosen[note.rows] > 0
    scores = None if note.rewards is None else note.rewards[note.rows]
    weights = context.step.weights[list(note.kept)]
    pairs = _grouped(note) if note.groups is not None else _laid_out(context, note, chosen, scores, weights)
    return Pairs(
        tuple(_oriented(pair, chosen, scores, weights) for pair in pairs), chosen is not None or scores is not None
    )


def _grouped(note: Note) -> list[Pair]:
    assert note.groups is not None
    members: dict[Hashable, list[int]] = {}
    for place, row in enumerate(note.rows.tolist()):
        members.setdefault(note.groups[row], []).append(place)
    sizes = {len(rows) for rows in members.values()}
    if sizes != {2}:
        raise UnmatchedError(f"a group has {plural(max(sizes - {2}), 'row')} in this update, a pair has 2", GROUPS)
    return [(first, second) for first, second in members.values()]


def _laid_out(context: Context, note: Note, chosen: Array | None, scores: Array | None, weights: Array) -> list[Pair]:
    """Return the only way to lay out pairs that goes with the prompts and with what is chosen."""
    ways = {frozenset(pairs): pairs for pairs in _ways(context, note)}
    fitting = [pairs for pairs in ways.values() if all(_differ(pair, chosen, scores, weights) for pair in pairs)]
    if len(fitting) != 1:
        raise UnmatchedError("which rows are a pair is not known", GROUPS)
    return fitting[0]


def _ways(context: Context, note: Note) -> Iterator[list[Pair]]:
    place_of = {row: place for place, row in enumerate(note.kept)}
    if len(place_of) != context.rows:
        return
    for partner in partners(context):
        pairs = sorted({(min(a, b), max(a, b)) for a, b in partner.items()})
        if all(a != b and _alike(context, a, b) for a, b in pairs):
            yield [(place_of[a], place_of[b]) for a, b in pairs]


def _alike(context: Context, first: int, second: int) -> bool:
    """Return whether two rows may have one prompt; where it is read off the coefficients, its end is not known."""
    rows = (context.step.rows[first], context.step.rows[second])
    return any(row.begins in {"coefficients", "unknown"} for row in rows) or prefix(context, first) == prefix(
        context, second
    )


def _differ(pair: Pair, chosen: Array | None, scores: Array | None, weights: Array) -> bool:
    a, b = pair
    if chosen is not None:
        return bool(chosen[a] != chosen[b])
    return scores is not None or bool(weights[a] * weights[b] < 0.0)


def _oriented(pair: Pair, chosen: Array | None, scores: Array | None, weights: Array) -> Pair:
    a, b = pair
    if chosen is not None:
        if chosen[a] == chosen[b]:
            raise UnmatchedError("a noted pair has two chosen rows, or none", CHOSEN)
        return (a, b) if chosen[a] else (b, a)
    if scores is not None and np.isfinite(scores[[a, b]]).all():
        first, second = (a, b) if scores[a] >= scores[b] else (b, a)
        return first, second
    if not weights[a] * weights[b] < 0.0:
        raise UnmatchedError("a pair is not pushed apart, so which of its rows is chosen does not show", CHOSEN)
    return (a, b) if weights[a] < 0.0 else (b, a)


def batches(context: Context, note: Note, units: Sequence[Sequence[int]]) -> tuple[Array, ...]:
    """Return the indices of units, such as pairs, that share forward passes, so that a mean may be over each."""
    calls = [
        {(row.rank, row.call) for row in (context.step.rows[note.kept[place]].row for place in unit)} for unit in units
    ]
    groups: list[tuple[set[tuple[int, int]], list[int]]] = []
    for index, mine in enumerate(calls):
        near = [group for group in groups if group[0] & mine]
        groups = [group for group in groups if not group[0] & mine]
        groups.append(
            (mine.union(*(each for each, _ in near)), sorted([index, *(k for _, rows in near for k in rows)]))
        )
    return tuple(np.array(rows) for _, rows in sorted(groups, key=lambda group: group[1][0]))
