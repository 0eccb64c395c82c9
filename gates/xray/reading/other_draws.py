"""Whether rows train what was drawn for their prompts: not the answers of other prompts, nor a closing token in place of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gates.xray.reading import drawn
from gates.xray.reading.context import Context
from gates.xray.reading.drawn import Drawn
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import rows

LEAST = 2  # tokens of a completion that tell whose it is
How = Literal["own", "forced", "other"]
FORCED = "train a row that a limit cuts off without a closing token, or leave it out"
OTHER = "keep the order in which prompts were asked, or the number of the prompt beside each answer"


def readings(context: Context) -> list[Reading]:
    """Return which rows train an answer that was drawn for another prompt, or end with a token that was not drawn."""
    drawn_rows = drawn.by_any(context)
    known = {
        index: _how(drawn.attended(row), row.row.prompt, drawn_rows, context.step.update.document.special.eos)
        for index, row in enumerate(context.step.rows)
        if drawn_rows and row.begins == "sampler"
    }
    if not known or len(known) < context.rows or None in known.values():
        return []
    return [
        *_forced([k for k, how in known.items() if how == "forced"]),
        *_others([k for k, how in known.items() if how == "other"]),
    ]


def _forced(members: list[int]) -> list[Reading]:
    if not members:
        return []
    sentence = (
        f"{rows(members)} {'ends' if len(members) == 1 else 'end'} with a closing token that was not drawn: another token was drawn in its "
        "place, as where an end is forced on rows that a limit cuts off"
    )
    because = "the tokens before it are those of a row that was drawn for the prompt, and its next is another"
    return [Reading("forced end", "attention", sentence, because, FORCED, {"rows": members})]


def _others(members: list[int]) -> list[Reading]:
    if len(members) < LEAST:
        return []
    sentence = (
        f"{rows(members)} train answers that were drawn for other prompts: answers and prompts do not belong together"
    )
    because = "the tokens of their completions were drawn behind another prompt, and not behind theirs"
    return [Reading("other prompts", "attention", sentence, because, OTHER, {"rows": members})]


def _how(ids: Sequence[int], begin: int | None, drawn_rows: Sequence[Drawn], ends: Sequence[int]) -> How | None:
    """Return how a completion came about; None where that does not show."""
    prompt, tokens = tuple(ids[: begin or 0]), tuple(ids[begin or 0 :])
    own = [row.completion for row in drawn_rows if row.prompt == prompt]
    if any(all(a == b for a, b in zip(tokens, completion, strict=False)) for completion in own):
        return "own"
    if own and len(tokens) >= LEAST and tokens[-1] in ends:
        before = tokens[:-1]
        if any(completion[: len(before)] == before and len(completion) > len(before) for completion in own):
            return "forced"
    whole = [
        row.completion for row in drawn_rows if row.prompt != prompt and 0 <= len(row.completion) - len(tokens) <= 1
    ]
    known = own and len(tokens) >= LEAST and any(completion[: len(tokens)] == tokens for completion in whole)
    return "other" if known else None
