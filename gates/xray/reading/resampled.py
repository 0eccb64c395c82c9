"""Whether rows are the tokens that a sampler drew: a text that is decoded and encoded again may become others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gates.xray.documents import Event
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.step import StepRow

AGAIN = "the text was probably decoded and encoded again"


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row as a sampler drew it.

    Attributes:
        ids: of prompt and completion.
        prompt: tokens of the prompt.
        letters: of the completion's text; None where nobody saw a tokenizer.
    """

    ids: tuple[int, ...]
    prompt: int
    letters: str | None


def readings(context: Context) -> Iterator[Reading]:
    """Say which rows of an update train other tokens than were sampled, and from which token on."""
    sampled = [_sampled(event) for event in context.recording.of("sampled") if _before(event, context)]
    filling = _filling(context)
    differ: dict[int, int] = {}
    for index, row in enumerate(context.step.rows):
        place = _first_difference(row, sampled, filling)
        if place is not None and context.weights[index] != 0.0:
            differ[index] = place
    if not differ:
        return
    first, start = next(iter(differ.items()))
    sentence = (
        f"{len(differ)} of {context.rows} rows {'trains' if len(differ) == 1 else 'train'} other tokens than were sampled, "
        f"first at token {start + 1} of row {first + 1}: {AGAIN}"
    )
    because = "their prompts were sampled from, and no sampled row begins with their tokens"
    remedy = "train the ids that the sampler returned"
    numbers = {"rows": list(differ), "tokens": list(differ.values())}
    yield Reading("sampled tokens", "attention", sentence, because, remedy, numbers)


def _before(event: Event, context: Context) -> bool:
    return bool(event.get("update", 0) < context.step.update.number)


def _sampled(event: Event) -> Sampled:
    prompt, text = event.get("prompt", []), event.get("text")
    ids = (*prompt, *event.get("completion", []))
    return Sampled(tuple(map(int, ids)), len(prompt), None if text is None else _letters(text))


def _letters(text: str) -> str:
    """Return what of a text no tokenizer changes: not its spaces, nor characters of several tokens."""
    return "".join(character for character in text if character.isascii() and character.isalnum())


def _filling(context: Context) -> frozenset[int]:
    """Return the tokens that scripts put behind what was sampled: those that end a row, and padding."""
    special = context.step.update.document.special
    closing = {row.row.ids[row.closing] for row in context.step.rows if row.closing is not None}
    return frozenset({*special.eos, *closing, *([] if special.pad is None else [special.pad])})


def _first_difference(row: StepRow, sampled: Sequence[Sampled], filling: frozenset[int]) -> int | None:
    """Return the position of a row's first token that was not sampled.

    None if the row is a sampled one, begins with one (and goes on with the answer of a tool) or is the beginning of one; or if
    no row of its prompt and its text was sampled.
    """
    places = np.setdiff1d(np.flatnonzero(row.row.attended), row.after).tolist()
    ids = [row.row.ids[place] for place in places]
    longest = -1
    for drawn in sampled:
        common = _common(ids, drawn.ids)
        if common == len(drawn.ids) or all(token in filling for token in ids[common:]):
            return None
        if common >= drawn.prompt and _same_text(row, places[drawn.prompt :], filling, drawn):
            longest = max(longest, common)
    return places[longest] if longest >= 0 else None


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many tokens two rows begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def _same_text(row: StepRow, places: Sequence[int], filling: frozenset[int], drawn: Sampled) -> bool:
    """Return whether a completion has the text of a sampled one, or most of it; true where the texts are not known."""
    if row.row.text is None or drawn.letters is None:
        return True
    letters = _letters("".join(row.row.text[place] for place in places if row.row.ids[place] not in filling))
    shorter, longer = sorted((letters, drawn.letters), key=len)
    return bool(shorter) and longer.startswith(shorter) and 2 * len(shorter) >= len(longer)
