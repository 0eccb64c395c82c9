"""What kind of training the signs of the rows show: supervised, preference pairs or a policy gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.xray.reading.context import Context
from gates.xray.reading.pairs import alike, opposite, pairs
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural, rows

BECAUSE = "a positive coefficient pushes a token down: the loss falls when its log-prob falls"


def readings(context: Context) -> list[Reading]:
    """Return the kind of training."""
    step = context.step
    weights = context.weights
    known = np.isfinite(weights)
    if not step.fit.size or not known.any():
        return []
    up, down = np.flatnonzero(known & (weights < 0)).tolist(), np.flatnonzero(known & (weights > 0)).tolist()
    still = np.flatnonzero(known & (weights == 0)).tolist()
    numbers = {"up": up, "down": down, "still": still, "unknown": np.flatnonzero(~known).tolist()}
    by_script = sampled(context)
    if up and not down and not still and not by_script:
        sentence = f"supervised: every row is pushed up ({plural(len(up), 'row')})"
        return [Reading("objective", "read", sentence, BECAUSE, numbers={**numbers, "kind": "supervised"})]
    apart = [] if by_script else pairs(context, up, down, still)
    if apart and (preference := _preference(context, apart, numbers)) is not None:
        return [preference]
    parts = [f"{plural(len(up), 'row')} pushed up", f"{len(down)} down"]
    if still:
        parts.append(f"{len(still)} untouched ({rows(still)})")
    if known.sum() < len(weights):
        parts.append(f"{plural(int((~known).sum()), 'row')} without a token of its own")
    return [Reading("objective", "read", ", ".join(parts), BECAUSE, numbers={**numbers, "kind": "policy gradient"})]


def sampled(context: Context) -> bool:
    """Return whether rows of this update were sampled by the script: a sampler was given their prompts, or ran since the last."""
    by_prompt = any(row.begins == "sampler" for row in context.step.rows)
    return by_prompt or bool(context.recording.of("generate", context.step.update.number))


def kind(context: Context) -> str:
    """Return "supervised", "preference", "unpaired", "policy gradient", or nothing where no row shows it."""
    return next((str(reading.numbers["kind"]) for reading in readings(context)), "")


def _preference(context: Context, apart: list[tuple[int, int, str]], numbers: Mapping[str, object]) -> Reading | None:
    unit = apart[0][2]
    if not all(alike(context, a, b) for a, b, _ in apart):
        ups = [row for row, _, _ in apart]
        if not all(opposite(context, ups[0], other, unit) for _, other, _ in apart):
            return None  # rows of other prompts with weights of their own: a policy gradient
        sentence = f"unpaired preferences: {len(apart)} rows are pushed up and as many down, by as much"
        return Reading("objective", "read", sentence, BECAUSE, numbers={**numbers, "kind": "unpaired"})
    how = "token by token" if unit == "token" else "by the sum over the row, so rows are averaged over their tokens"
    sentence = f"preference pairs, or groups of two: in each of {len(apart)}, one row is pushed up and the other down by as much, {how}"
    listed = [[a, b] for a, b, _ in apart]
    return Reading(
        "objective", "read", sentence, BECAUSE, numbers={**numbers, "kind": "preference", "pairs": listed, "unit": unit}
    )
