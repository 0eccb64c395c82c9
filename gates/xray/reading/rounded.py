"""A ratio to log-probs that half precision has rounded: between 4 and 8, bfloat16 keeps every thirty-second.

The coefficient of a token is the weight of its row times exp(policy − old), so old log-probs are known but for a constant of the
row. They are rounded if one constant puts all tokens of a row on numbers of half precision, and so in every row.
"""

from __future__ import annotations

from math import log

import numpy as np

from gates.model import Array
from gates.xray.reading import shapes
from gates.xray.reading.shapes import Shape, Source
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step

BITS = {"bfloat16": 8, "float16": 11}  # of a significand
NEAR = 0.5  # nats around the policy in which a rounded log-prob is looked for
CHANCE = 1e-6  # by which all rows may lie on numbers of half precision
ROUNDING = 4e-7  # of a log-prob in float32, and of the ratio that is made of it
BY = "log-probs rounded to "


def fitting(step: Step, tokens: Tokens) -> list[Shape]:
    """Return shapes whose ratio divides by rounded log-probs of the policy."""
    for name, bits in BITS.items():
        values = _values(step, tokens, bits)
        shape = None if values is None else shapes.to(step, tokens, Source(f"{BY}{name}", values))
        if shape is not None and shape.misfit <= tokens.quantile:
            return [shape]
    return []


def rounded(values: Array, bits: int) -> Array:
    """Return the nearest numbers with so many bits of significand."""
    part, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(part, bits)), exponent - bits))


def _values(step: Step, tokens: Tokens, bits: int) -> Array | None:
    """Return the rounded log-probs of the tokens, the policy's own where they weigh nothing; None where they are none."""
    values, near, chance = step.update.log_probs.copy(), _scored(step), 0.0
    for row in tokens.rows:
        here = (tokens.row == row) & ~tokens.zero
        if here.sum() < 2:
            continue
        policy = step.update.log_probs[tokens.column[here]]
        precise = policy - np.log(np.abs(tokens.value[here]))
        room = tokens.quantile * tokens.error[here] / np.abs(tokens.value[here]) + ROUNDING * np.maximum(
            1, np.abs(policy)
        )
        old = _row(near[tokens.column[here]], precise, room, bits)
        if old is None:
            return None
        tries = 2 * NEAR / _spacing(old[:1], bits)[0]
        chance += log(tries) + float(np.log(np.minimum(1.0, 2 * (room + room[0]) / _spacing(old, bits))[1:]).sum())
        values[tokens.column[here]] = old
    return values if chance < log(CHANCE) else None


def _scored(step: Step) -> Array:
    """Return the log-probs of a pass of the policy without gradient, or its own where there is none."""
    passes = (values for scorer, values in step.update.scored if scorer.by == "trained model")
    values = next(passes, step.update.log_probs)
    return np.where(np.isfinite(values), values, step.update.log_probs)


def _row(near: Array, precise: Array, room: Array, bits: int) -> Array | None:
    """Return rounded log-probs of a row, of several those that are closest to some numbers; None where there are none."""
    spacing = float(_spacing(near[:1], bits)[0])
    firsts = rounded(near[0] + np.arange(-NEAR, NEAR, spacing / 2), bits)
    moved = precise[None, :] + (np.unique(firsts) - precise[0])[:, None]
    fits = (np.abs(moved - rounded(moved, bits)) <= room + room[0]).all(axis=1)
    if not fits.any():
        return None
    apart = np.abs((moved - near).mean(axis=1))
    return rounded(moved[np.where(fits, apart, np.inf).argmin()], bits)


def _spacing(values: Array, bits: int) -> Array:
    """Return how far numbers with so many bits lie apart."""
    return np.asarray(np.ldexp(1.0, np.frexp(values)[1] - bits))


def again(step: Step, tokens: Tokens, before: Step, named: Shape, of: Tokens) -> tuple[Tokens, list[Shape]]:
    """Return the shapes, with a KL too, that divide by the rounded log-probs of an earlier update, and the tokens that have them.

    Args:
        step: the update.
        tokens: that decide.
        before: the earlier update.
        named: its shape.
        of: its tokens.
    """
    old = before.update.log_probs[of.column] - np.log(named.surrogate)
    known = {before.update.keys[int(c)]: x for c, x, off in zip(of.column, old, of.zero, strict=True) if not off}
    values = np.array([known.get(key, np.nan) if key else np.nan for key in step.update.keys])
    seen = tokens.taken(np.isfinite(values[tokens.column]))
    source = Source(named.old or "", values)
    shaped = shapes.candidates(step, seen, [before], [source]) if len(seen.value) else ()
    return seen, [shape for shape in shaped if shape.old == source.name and shape.misfit <= seen.quantile]
