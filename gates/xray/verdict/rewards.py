"""Advantages from noted rewards: by the noted convention, by each published one, and by mistakes in the order of rewards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from gates.model import Array, ConfigurationError
from gates.recorded import advantages as recorded
from gates.recorded.fields import KEY, VERSION
from gates.recorded.file import open_step
from gates.recorded.finding import Finding
from gates.recorded.settings import ADVANTAGES
from gates.recorded.step import Step
from gates.xray.verdict.notes import Note
from gates.xray.verdict.ragged import padded
from gates_reference.oracle import advantages as oracle

NOTED = "the noted advantages"


@dataclass(frozen=True)
class Advantages:
    """Advantages of the rows of an update.

    Attributes:
        words: how they come from rewards.
        values: (B,), or (B, L) from the first token of each completion on.
        changes: settings that ask for them; empty where they are noted or a mistake.
        mistake: whether nobody means them.
    """

    words: str
    values: Array
    changes: Mapping[str, Any]
    mistake: bool = False


def asked(note: Note, settings: Mapping[str, Any]) -> list[Advantages]:
    """Return the advantages that a note asks for: as noted, by the settings, or by each published convention.

    Raises:
        ConfigurationError: the settings do not go together.
    """
    if note.advantages is not None:
        return [Advantages(NOTED, note.advantages[note.rows], {})]
    if (tokens := note.tokens.get("advantages")) is not None:
        return [Advantages(NOTED, padded(tokens, note.rows.tolist()), {})]
    written = {name: settings[name] for name in ADVANTAGES if name in settings}
    if written and (written.get("scale") == "none" or set(written) == set(ADVANTAGES)):
        convention = {name: written.get(name) for name in ADVANTAGES}
        try:
            values = _of(note, _rewards(note), convention)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        return [Advantages(recorded.words_of(convention), values, {})]
    return [each for each in published(note) if all(each.changes.get(k) == v for k, v in written.items())]


def published(note: Note, *, most: int | None = None) -> list[Advantages]:
    """Return the advantages of each convention, libraries' first; of those that give equal numbers, the first."""
    if note.rewards is None:
        return []
    kept: list[Advantages] = []
    for convention in islice(recorded.conventions(), most):
        if convention.get("statistics"):
            continue
        try:
            values = _of(note, _rewards(note), convention)
        except ValueError:  # such as leave-one-out with one row a prompt
            continue
        if not any(np.array_equal(values, other.values) for other in kept):
            kept.append(Advantages(recorded.words_of(convention), values, dict(convention)))
    return kept


def mistaken(note: Note, asked_for: Sequence[Advantages]) -> Iterator[Advantages]:
    """Yield advantages by rewards in a wrong order, and noted or computed ones of other rows."""
    orders: dict[str, Array] = {
        "of the next row": np.roll(np.arange(note.count), -1),
        "of the row before": np.roll(np.arange(note.count), 1),
        "in reverse order": np.arange(note.count)[::-1],
    }
    if (tokens := note.tokens.get("advantages")) is not None:
        yield from _misplaced(note, tokens, orders)
    for each in asked_for:
        convention = _convention(each, note)
        for words, order in orders.items():
            if note.rewards is not None and convention is not None:
                values = _of(note, _rewards(note)[order], convention)
                yield Advantages(f"rewards {words}", values, {}, mistake=True)
            if note.advantages is not None:
                yield Advantages(f"advantages {words}", note.advantages[order][note.rows], {}, mistake=True)
        yield from _regrouped(note, convention)


def _misplaced(note: Note, tokens: Sequence[Array], orders: Mapping[str, Array]) -> Iterator[Advantages]:
    """Yield advantages of tokens in a wrong order: of other rows, of the next token, or one for the whole row."""
    for words, order in orders.items():
        values = padded([tokens[row] for row in order], note.rows.tolist())
        yield Advantages(f"advantages {words}", values, {}, mistake=True)
    changes: dict[str, Callable[[Array], Array]] = {
        "advantages of the next token": lambda row: np.append(row[1:], 0.0),
        "advantages of the token before": lambda row: np.insert(row[:-1], 0, 0.0),
        "advantages in reverse order of the tokens": lambda row: row[::-1],
        "the mean of a row's advantages for each of its tokens": lambda row: np.full(len(row), np.nanmean(row)),
        "the advantage of a row's first token for each of its tokens": lambda row: np.full(len(row), row[0]),
        "the advantage of a row's last token for each of its tokens": lambda row: np.full(len(row), row[-1]),
    }
    for words, change in changes.items():
        changed = [change(row) if len(row) else row for row in tokens]
        yield Advantages(words, padded(changed, note.rows.tolist()), {}, mistake=True)


def _regrouped(note: Note, convention: Mapping[str, Any] | None) -> Iterator[Advantages]:
    """Yield the advantages of groups that are taken across each other: each k-th row instead of k rows in turn."""
    if note.rewards is None or convention is None:
        return
    sizes = {len(members) for members in _members(note)}
    if len(sizes) == 1 and 1 < (size := sizes.pop()) < note.count:
        prompts = note.count // size
        for words, labels in (
            ("each k-th row taken for a group", np.arange(note.count) % prompts),
            ("rows in turn taken for a group", np.arange(note.count) // size),
        ):
            values = _by(list(labels), _rewards(note), convention)[note.rows]
            yield Advantages(f"{words}, not the rows of one prompt", values, {}, mistake=True)


def _convention(each: Advantages, note: Note) -> Mapping[str, Any] | None:
    if each.changes:
        return each.changes
    for convention in recorded.conventions():
        if recorded.words_of(convention) == each.words and note.rewards is not None:
            return convention
    return None


def _rewards(note: Note) -> Array:
    assert note.rewards is not None
    return note.rewards


def _of(note: Note, rewards: Array, convention: Mapping[str, Any]) -> Array:
    """Return the advantages of the update's rows."""
    labels = list(note.groups) if note.groups is not None else [0] * note.count
    return _by(labels, rewards, convention)[note.rows]


def _by(labels: Sequence[Hashable], rewards: Array, convention: Mapping[str, Any]) -> Array:
    """Return the advantages of all noted rows; an absent row of a group is one without a score."""
    members = _grouped(labels)
    size = max(map(len, members))
    table = np.full((len(members), size), np.nan)
    for index, rows in enumerate(members):
        table[index, : len(rows)] = rewards[rows]
    keywords = {name: convention[name] for name in ADVANTAGES}
    values = oracle.group_advantages(table.reshape(-1), size, **keywords).reshape(table.shape)
    result = np.zeros(len(rewards))
    for index, rows in enumerate(members):
        result[rows] = values[index, : len(rows)]
    return result


def _members(note: Note) -> list[list[int]]:
    return _grouped(list(note.groups) if note.groups is not None else [0] * note.count)


def _grouped(labels: Sequence[Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        groups.setdefault(label, []).append(index)
    return list(groups.values())


def judged(note: Note, settings: Mapping[str, Any]) -> Finding | None:
    """Return the verdict of `gates judge` on noted advantages, or None where rewards, groups or advantages are not noted."""
    if note.rewards is None or note.advantages is None or note.groups is None:
        return None
    arrays = {"rewards": note.rewards, "advantages": note.advantages}
    narrow = all((values.astype(np.float32) == values)[np.isfinite(values)].all() for values in arrays.values())
    labels: dict[Hashable, int] = {}
    numbers = np.array([labels.setdefault(label, len(labels)) for label in note.groups], dtype=np.int64)
    tensors = {name: values.astype(np.float32 if narrow else np.float64) for name, values in arrays.items()}
    written = {name: str(settings[name]) for name in ADVANTAGES if name in settings}
    with tempfile.TemporaryDirectory(prefix="gates-xray-") as folder:
        file = Path(folder, "note.safetensors")
        save_file({**tensors, "groups": numbers}, file, metadata={KEY: VERSION, **written})
        return recorded.judge(Step(open_step(file)))
