"""Rows of a rollout that an update trains several times, while others are not in it: they were drawn with replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural
from gates.xray.step import PADDED

REMEDY = (
    "draw the rows of an update without replacement: a permutation of them (randperm), not random numbers (randint)"
)
BECAUSE = "rows with these tokens were scored or sampled less often before the update, and as many rows in all"

Ids = tuple[int, ...]


def reading(context: Context) -> Reading | None:
    """Return that rows stand several times in an update that has as many rows as the rollout; None where none do."""
    if context.recording.world_size > 1:
        return None
    trained = [tuple(np.array(row.row.ids)[row.row.attended].tolist()) for row in context.step.rows]
    counts = Counter(trained)
    rollouts = (times for total, times in _rollouts(context, trained) if total == len(trained))
    for times in rollouts:
        often = [row for row, count in counts.items() if count > times.get(row, 0) > 0]
        if often and all(times.get(row, 0) for row in counts):
            return _named(context, often, counts, sum(times.values()))
    return None


def _rollouts(context: Context, trained: list[Ids]) -> Iterator[tuple[int, Mapping[Ids, int]]]:
    """Yield the rows of the rollout as each scorer or the sampler saw it: how many, and how often each row of the update."""
    for scorer, _ in context.step.update.scored:
        if scorer.by != PADDED and len(scorer.times) == len(trained):
            yield scorer.scored, dict(zip(trained, scorer.times, strict=True))
    events = [e for e in context.recording.of("sampled") if e.get("update", 0) < context.step.update.number]
    last = max((event.get("update", 0) for event in events), default=0)
    drawn = Counter(
        (*map(int, event.get("prompt", [])), *map(int, event.get("completion", [])))
        for event in events
        if event.get("update", 0) == last
    )
    yield drawn.total(), {row: drawn[row] for row in trained if row in drawn}


def _named(context: Context, often: list[Ids], counts: Counter[Ids], held: int) -> Reading:
    """Return how many rows stand several times, and how many of the rollout are missing."""
    missing, rows = context.rows - held, len(often)
    sentence = (
        f"{plural(rows, 'row')} of the rollout {'is' if rows == 1 else 'are'} trained {_times([counts[row] for row in often])} in this "
        f"update, and {missing} of its {context.rows} {'is' if missing == 1 else 'are'} not in it: rows were drawn with replacement"
    )
    numbers = {"often": rows, "times": [counts[row] for row in often], "missing": missing}
    return Reading("duplicates", "attention", sentence, BECAUSE, REMEDY, numbers)


def _times(counts: list[int]) -> str:
    """Return how often: 2 times; 2 or 3 times."""
    least, most = min(counts), max(counts)
    return f"{least} times" if least == most else f"{least} {'or' if most == least + 1 else 'to'} {most} times"
