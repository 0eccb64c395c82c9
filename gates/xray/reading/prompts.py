"""How many rows each prompt has in an update, and whether rows that were scored or sampled never train."""

from __future__ import annotations

import numpy as np

from gates.xray.reading import objective
from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural, some
from gates.xray.step import Step, shared

LEAST = 3  # prompts, so that all but the last show how many are meant
REMEDY = "train the last rows as well: an incomplete batch is dropped, though its rows are in the baseline"


def readings(context: Context) -> list[Reading]:
    """Return the rows of each prompt where prompts have unequal numbers of them."""
    step = context.step
    groups = shared(step.prompts)
    counts = [len(members) for members in groups.values()]
    told = objective.kind(context) == "policy gradient" and objective.sampled(context)
    if not told or sum(counts) < context.rows or len(set(counts)) < 2:
        return []
    first = next((before for before in context.earlier if _identities(before.step) == _identities(step)), None)
    missing = 0 if first is None else max(0, _drawn(context, first.step.update.number) - len(_identities(step)))
    sentence = f"prompts have unequal numbers of rows: {some(counts, 8)}"
    numbers = {"rows": counts, "missing": missing}
    if not missing:
        return [Reading("rows a prompt", "read", sentence, "rows that begin with the same prompt", numbers=numbers)]
    sentence += f"; {missing} of {plural(missing + len(_identities(step)), 'row')} of these prompts never {'trains' if missing == 1 else 'train'}"
    because = "so many rows of these prompts were scored or sampled before the first update, and no other rows train"
    if len(counts) >= LEAST and len(set(counts[:-1])) == 1 and counts[-1] < counts[0]:
        sentence += ": only the last prompt has fewer, as where an incomplete last batch is dropped"
        return [Reading("rows a prompt", "attention", sentence, because, REMEDY, numbers)]
    return [Reading("rows a prompt", "read", sentence, because, numbers=numbers)]


def _identities(step: Step) -> frozenset[tuple[int, ...]]:
    """Return the attended tokens of each row, equal rows once."""
    return frozenset(tuple(np.array(row.row.ids)[row.row.attended].tolist()) for row in step.rows)


def _drawn(context: Context, number: int) -> int:
    """Return how many rows of an update's prompts the trained model scored, or a sampler drew, right before an update."""
    update = context.step.update
    scored = [
        scorer.lines for scorer, _ in update.scored if scorer.by == "trained model" and scorer.update == number - 1
    ]
    prompts = {prompt for prompt in context.step.prompts if prompt is not None}
    sampled = {
        (tuple(event.get("prompt", [])), tuple(event.get("completion", [])))
        for event in context.recording.of("sampled", number)
        if tuple(event.get("prompt", [])) in prompts
    }
    return int(np.max([*scored, len(sampled)])) if context.recording.world_size == 1 else 0
