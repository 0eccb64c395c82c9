"""Numbers of tokens in a note: a list for each row, with a number for each token of its completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gates.model import Array
from gates.xray.verdict.unmatched import UnmatchedError, flat

LOG_PROBS = ("sampler_log_probs", "reference_log_probs")


def by_token(values: Sequence[Any] | None, counts: Sequence[int], scored: Sequence[str]) -> bool:
    """Return whether noted advantages are numbers of tokens, not of rows in nested lists.

    Args:
        values: as noted.
        counts: of the rows in other facts of the note.
        scored: the rows of the update that follows the note.
    """
    if not values or not any(isinstance(row, list) for row in values):
        return False
    numbers = len(flat(list(values)))
    if numbers == len(values) or numbers in counts:
        return False
    return len(values) in counts or (not counts and len(scored) % numbers != 0)


def ragged(name: str, values: Sequence[Any]) -> list[Array]:
    """Return the numbers of each row; null and what JSON lacks are NaN.

    Raises:
        UnmatchedError: a row has no list of numbers.
    """
    rows = []
    for index, row in enumerate(values):
        try:
            rows.append(np.array([float("nan") if value is None else float(value) for value in flat(row)]))
        except (TypeError, ValueError):
            sentence = f"row {index + 1} of the noted {name} has what is not a number"
            raise UnmatchedError(sentence, f"note `{name}` as a list a row, with a number a token") from None
    return rows


def on_slots(name: str, tokens: Sequence[Array], rows: Sequence[int], mask: Array) -> Array:
    """Return the numbers of tokens on the slots of completions; NaN elsewhere.

    Args:
        name: of the fact, for messages.
        tokens: of each noted row, padded or not.
        rows: the noted row of each row of the mask.
        mask: (B, T), the slots of completions.

    Raises:
        UnmatchedError: a row has fewer numbers than tokens.
    """
    wide = np.full(mask.shape, np.nan)
    for index, row in enumerate(rows):
        slots = np.flatnonzero(mask[index])
        if len(tokens[row]) < len(slots):
            raise UnmatchedError(
                f"row {row + 1} of the noted {name} has {len(tokens[row])} numbers, its completion {len(slots)} tokens",
                f"note a number of `{name}` for each token of the completion, its closing token too",
            )
        wide[index, slots] = tokens[row][: len(slots)]
    return wide


def padded(tokens: Sequence[Array], rows: Sequence[int]) -> Array:
    """Return the numbers of rows as one array, (B, L), with 0 behind the last of a row."""
    wide = np.zeros((len(rows), max((len(tokens[row]) for row in rows), default=0)))
    for index, row in enumerate(rows):
        wide[index, : len(tokens[row])] = np.where(np.isfinite(tokens[row]), tokens[row], 0.0)
    return wide


def from_begins(values: Array, begins: Array | None, width: int) -> Array:
    """Return numbers of completions' tokens, (B, L), on slots, (B, width): 0 where no completion stands."""
    at = np.arange(width)[None, :] - (np.zeros((len(values), 1), np.int64) if begins is None else begins[:, None])
    inside = (at >= 0) & (at < values.shape[1])
    return np.where(inside, np.take_along_axis(values, np.clip(at, 0, values.shape[1] - 1), axis=1), 0.0)


def of_rows(facts: Mapping[str, Any]) -> dict[str, Sequence[Array]]:
    """Return the facts of a note that are lists of tokens' numbers."""
    return {name: ragged(name, facts[name]) for name in ("advantages", *LOG_PROBS) if facts.get(name) is not None}
