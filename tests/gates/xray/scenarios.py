"""Losses as papers write them, as coefficients of the log-probs of a recorded update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from recordings import Line, Made, Model, events, generated, lines, spread, write

from gates.model import Array
from gates.xray.picture import Picture, read

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 5)
GROUP = 4


def advantages(seed: int = 3, groups: int = 2) -> Array:
    """z-scores of rewards within groups of four."""
    rewards = np.random.default_rng(seed).normal(size=(groups, GROUP))
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    return np.asarray((centred / rewards.std(axis=1, ddof=1, keepdims=True)).ravel())


def row_mean(rows: Sequence[Line], weights: Array) -> Array:
    """GRPO: the mean over rows of the mean over tokens of −A."""
    return np.array([-a / line.length / len(rows) for a, line in zip(weights, rows, strict=True)])


def token_mean(rows: Sequence[Line], weights: Array) -> Array:
    """DAPO: the mean over the tokens of the step of −A."""
    return np.asarray(-weights / sum(line.length for line in rows))


def constant(rows: Sequence[Line], weights: Array) -> Array:
    """Dr. GRPO: a constant divisor."""
    return np.asarray(-weights / (len(rows) * 12))


def by_token(rows: Sequence[Line], of: Callable[[int, int], float]) -> list[Array]:
    """Give each token of a completion a coefficient by its row and its place in the completion."""
    return [
        np.array([0.0] * len(line.prompt) + [of(i, t) for t in range(line.length)] + [0.0] * line.padding)
        for i, line in enumerate(rows)
    ]


def picture(folder: Path, *updates: Made, sampled: bool = True) -> Picture:
    """Record updates of one process and read the last."""
    for made in updates:
        write(folder / "process-1", made)
    events(folder / "process-1", *([generated()] if sampled else []), updates=len(updates))
    return read(folder).updates[-1]


def second(
    rows: Sequence[Line],
    weights: Array,
    *,
    ratio: str = "token",
    bounds: tuple[float, float] = (0.0, 9.0),
    beta: float = 0.0,
    form: Callable[[Array], Array] = lambda x: 1.0 - np.exp(-x),
    step: float = 0.06,
    weigh: Callable[[Sequence[Line], Array], Array] = row_mean,
    maximum: bool = False,
    weighted: bool = False,
    seed: int = 0,
) -> tuple[Made, Made]:
    """Two updates of one rollout: the second with a clipped ratio to the weights before the first, and a KL to them.

    With `maximum`, max(r·A, clip(r)·A) stands in place of the minimum; with `weighted`, the KL is multiplied by the ratio.
    """
    model = Model.drawn(seed)
    later = model.moved(np.random.default_rng(9 + seed).normal(0.0, step, model.flat.shape))
    first_weights = weigh(rows, weights)
    averaged = -weigh(rows, np.ones(len(rows)))  # the KL is averaged as the surrogate is
    first = Made(model, list(rows), spread(rows, first_weights), after=later.flat)
    coefficients = []
    for line, a, weight, mean in zip(rows, weights, first_weights, averaged, strict=True):
        begin, end = len(line.prompt), len(line.prompt) + line.length
        d = (later.log_probs(line.ids) - model.log_probs(line.ids))[begin:end]
        r = {"token": np.exp(d), "none": np.ones(len(d)), "sequence": np.full(len(d), np.exp(d.mean()))}[ratio]
        clipped = r > bounds[1] if (a > 0) != maximum else r < bounds[0]
        values = np.where(clipped, 0.0, weight * r) + beta * form(d) * mean * (np.exp(d) if weighted else 1.0)
        coefficients.append(np.concatenate([np.zeros(begin), values, np.zeros(line.padding)]))
    return first, Made(later, list(rows), coefficients, number=2, start=model)


def grpo(weigh: Callable[[Sequence[Line], Array], Array] = row_mean) -> Made:
    """One update of eight rows in two groups."""
    rows = lines(LENGTHS, GROUP)
    return Made(Model.drawn(), rows, spread(rows, weigh(rows, advantages())))
