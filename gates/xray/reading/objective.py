"""What kind of training the signs of the rows show: supervised, preference pairs or a policy gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.xray.reading.context import Context
from gates.xray.reading.reading import Reading
from gates.xray.reading.words import plural, rows
from gates.xray.step import shared

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
    pairs = [] if still or by_script else _pairs(context, up, down)
    if pairs and (preference := _preference(context, pairs, numbers)) is not None:
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


def _pairs(context: Context, up: list[int], down: list[int]) -> list[tuple[int, int, str]]:
    """Return pairs of a row that is pushed up and one that is pushed down by as much: by token, or by sum over the row."""
    if len(up) != len(down):
        return []
    for partner in partners(context):
        for unit in ("token", "row"):
            pairs = [(row, partner.get(row, -1), unit) for row in up]
            if all(other in down and _opposite(context, row, other, unit) for row, other, _ in pairs):
                return pairs
    return []


def partners(context: Context) -> list[dict[int, int]]:
    """Return who may be whose partner: the other row of a prompt, the row in the other half, the neighbour."""
    count = context.rows
    ways = []
    groups = shared(context.step.prompts)
    if (
        groups
        and all(len(group) == 2 for group in groups.values())
        and all(p is not None for p in context.step.prompts)
    ):
        ways.append({a: b for pair in groups.values() for a, b in (pair, pair[::-1])})
    if count % 2 == 0:
        half = count // 2
        ways += [{i: (i + half) % count for i in range(count)}, {i: i ^ 1 for i in range(count)}]
        ways += _by_call(context)
    return ways


def _by_call(context: Context) -> list[dict[int, int]]:
    """Return the row in the other half of each forward pass."""
    partner: dict[int, int] = {}
    calls: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(context.step.rows):
        calls.setdefault((row.row.rank, row.row.call), []).append(index)
    for members in calls.values():
        if len(members) % 2:
            return []
        half = len(members) // 2
        partner |= {a: b for k, a in enumerate(members) for b in (members[(k + half) % len(members)],)}
    return [partner]


def _opposite(context: Context, row: int, other: int, unit: str) -> bool:
    step, shape = context.step, context.shape
    sizes = [1.0, 1.0] if unit == "token" else [float(len(step.rows[k].completion)) for k in (row, other)]
    a, b = (step.weights[k] * size for k, size in zip((row, other), sizes, strict=True))
    errors = [
        max(shape.errors.get(k, 0.0), step.fit.rounding * abs(step.weights[k])) * size
        for k, size in zip((row, other), sizes, strict=True)
    ]
    return bool(abs(a + b) <= 2 * context.tokens.quantile * np.hypot(*errors))


def _preference(context: Context, pairs: list[tuple[int, int, str]], numbers: Mapping[str, object]) -> Reading | None:
    unit = pairs[0][2]
    if not all(prefix(context, a) == prefix(context, b) for a, b, _ in pairs):
        ups = [row for row, _, _ in pairs]
        if not all(_opposite(context, ups[0], other, unit) for _, other, _ in pairs):
            return None  # rows of other prompts with weights of their own: a policy gradient
        sentence = f"unpaired preferences: {len(pairs)} rows are pushed up and as many down, by as much"
        return Reading("objective", "read", sentence, BECAUSE, numbers={**numbers, "kind": "unpaired"})
    how = "token by token" if unit == "token" else "by the sum over the row, so rows are averaged over their tokens"
    sentence = f"preference pairs, or groups of two: in each of {len(pairs)}, one row is pushed up and the other down by as much, {how}"
    listed = [[a, b] for a, b, _ in pairs]
    return Reading(
        "objective", "read", sentence, BECAUSE, numbers={**numbers, "kind": "preference", "pairs": listed, "unit": unit}
    )


def prefix(context: Context, index: int) -> tuple[int, ...]:
    """Return the attended tokens before the first that trains: those of a pair are equal."""
    row = context.step.rows[index]
    begin = row.begin or 0
    return tuple(np.array(row.row.ids)[:begin][row.row.attended[:begin]].tolist())
