"""A ratio to another power than 1: log-probs that are divided by the temperature after the softmax, T·log p."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from gates.xray.reading import mistaken, shapes
from gates.xray.reading.shapes import Shape, Source
from gates.xray.reading.tokens import Tokens
from gates.xray.step import Step

USUAL = (0.7, 1.5, 0.8, 0.9, 1.2, 0.6, 0.5, 2.0, 1.1, 1.3, 0.3, 0.4, 1.25, 1.4, 1.6, 1.8)  # temperatures
FORMS = ("k3", "k2")
MOST = 2_000  # tokens that are tried at each of them
NEAR = 1e-2  # of the exponent: a nearer one is not told from 1


def fitting(step: Step, tokens: Tokens, earlier: Sequence[Step], asked: Sequence[float] = ()) -> list[Shape]:
    """Return shapes whose tokens weigh by a power of a ratio: without a KL to any power, else by one over a temperature.

    Args:
        step: the update.
        tokens: that decide.
        earlier: updates before it.
        asked: temperatures of samplers.
    """
    if step.update.number < 2 or len(tokens.value) > MOST:
        return []
    plain = [shape for source in shapes.olds(step, earlier) if (shape := _plain(step, tokens, source)) is not None]
    if plain := [shape for shape in plain if mistaken.agrees(tokens, shape)]:
        return plain
    for temperature in dict.fromkeys((*asked, *USUAL)):
        shaped = _divided(step, tokens, earlier, temperature)
        if agreeing := [shape for shape in shaped if mistaken.agrees(tokens, shape)]:
            return agreeing
    return []


def _plain(step: Step, tokens: Tokens, source: Source) -> Shape | None:
    """Return the shape of a ratio to the power that fits best."""
    on = ~tokens.zero
    apart = (step.update.log_probs - source.values)[tokens.column]
    if not np.isfinite(apart).all() or not on.any():
        return None
    weight, index, count = (tokens.value[on] / tokens.error[on]) ** 2, tokens.index[on], len(tokens.rows)
    total = np.maximum(np.bincount(index, weight, count), np.finfo(float).tiny)
    size, distance = (
        each - (np.bincount(index, weight * each, count) / total)[index]
        for each in (np.log(np.abs(tokens.value[on])), apart[on])
    )
    strength = float(weight @ distance**2)
    power = float(weight @ (size * distance)) / strength if strength else 1.0
    if abs(power - 1.0) < NEAR or abs(power) < NEAR or abs(power + 1.0) < NEAR:
        return None
    moved = Source(source.name, step.update.log_probs - power * (step.update.log_probs - source.values))
    shape = shapes.to(step, tokens, moved)
    return shape and shapes.named(shape, power=power)


def _divided(step: Step, tokens: Tokens, earlier: Sequence[Step], temperature: float) -> Iterator[Shape]:
    """Yield the shapes of log-probs that are divided by a temperature, in the ratio and in the KL."""
    if temperature in {0.0, 1.0}:
        return
    here = step.update.log_probs[tokens.column] / temperature
    pairs = product(shapes.olds(step, earlier), shapes.references(step), FORMS, (True, False))
    for old, reference, form, by_length in pairs:
        apart, away = (here - source.values[tokens.column] / temperature for source in (old, reference))
        if np.isfinite(apart).all() and np.isfinite(away).all():
            divisor = shapes.lengths_of(step, tokens) if by_length else 1.0
            shape = shapes.clipping(tokens, np.exp(apart), shapes.FORMS[form](away) / divisor)
            names = {"old": old.name, "form": form, "reference": reference.name}
            yield shapes.named(shape, **names, by_length=by_length, power=1.0 / temperature)
