"""What samplers drew and were given for the rows of an update, as far as they were seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gates.xray.documents import Event
from gates.xray.reading.context import Context
from gates.xray.step import StepRow


@dataclass(frozen=True, slots=True)
class Drawn:
    """A prompt and the tokens that a sampler drew behind it."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def before(context: Context) -> list[Drawn]:
    """Return the rows that samplers drew before an update."""
    return [_row(event) for event in context.recording.of("sampled") if _earlier(event, context)]


def by_any(context: Context) -> list[Drawn]:
    """Return these and what the script's own loops drew; the last token of a loop may be one too many."""
    return [*before(context), *(_row(event) for event in context.recording.of("drawn") if _earlier(event, context))]


def _earlier(event: Event, context: Context) -> bool:
    return bool(event.get("update", 0) < context.step.update.number)


def _row(event: Event) -> Drawn:
    return Drawn(tuple(map(int, event.get("prompt", []))), tuple(map(int, event.get("completion", []))))


def attended(row: StepRow) -> list[int]:
    """Return the attended tokens of a row."""
    return np.array(row.row.ids)[row.row.attended].tolist()  # type: ignore[no-any-return]


def given(context: Context) -> set[tuple[int, int]]:
    """Return rows and positions of tokens that stand behind drawn ones and were in a later prompt: no sampler drew them."""
    rows = before(context)
    return {
        (index, int(position))
        for index, row in enumerate(context.step.rows)
        if row.begins == "sampler"
        for position in np.flatnonzero(row.row.attended)[_given(attended(row), row.row.prompt or 0, rows)]
    }


def _given(ids: Sequence[int], begin: int, rows: Sequence[Drawn]) -> list[int]:
    """Return the attended positions of a row's tokens that a prompt has and no completion; none where the first is not drawn."""
    prompts: set[int] = set()
    drawn: set[int] = set()
    for row in rows:
        start = len(row.prompt)
        if start >= begin and tuple(ids[:start]) == row.prompt:
            prompts.update(range(begin, start))
            drawn.update(range(start, start + _alike(ids[start:], row.completion)))
    return sorted(prompts - drawn) if begin in drawn else []


def _alike(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def completions(rows: Sequence[Drawn], row: StepRow) -> Iterator[tuple[int, ...]]:
    """Yield what was drawn behind the prompt of a row."""
    prompt = tuple(attended(row)[: row.row.prompt or 0])
    return (each.completion for each in rows if each.prompt == prompt)
