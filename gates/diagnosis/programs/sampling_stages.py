"""The stages of a sampler in its forward definition: which tokens stay.

Tokens are compared in float64. Where a threshold lies so near to a mass that the data's dtype may decide otherwise, a row is
undecided: nothing is claimed of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gates.diagnosis.program import Choices, Inputs
from gates.model import Array

ROUNDING = {"float32": 1e-5, "float64": 1e-12}  # of a mass: hundreds of additions of the dtype


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows on their way through the stages.

    Attributes:
        logits: (B, V) float64, without a temperature.
        possible: the tokens that are there at first, (B, V).
        alive: the tokens that are still there.
        before: those that were there before the last filter.
        temperature: what the logits have been divided by so far.
        undecided: the rows in which rounding may decide, (B,).
        rounding: how near to a threshold that is.
    """

    logits: Array
    possible: Array
    alive: Array
    before: Array
    temperature: float
    undecided: Array
    rounding: float

    def scores(self, among: Array) -> Array:
        """Return the logits at the temperature so far, −inf at tokens that are not among these."""
        return np.where(among, self.logits / self.temperature, -np.inf)

    def masses(self, choice: str) -> Array:
        """Return the probabilities over the survivors, or over all tokens."""
        scores = self.scores(self.alive if choice == "survivors" else self.possible)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def after(self, stays: Array, near: Array) -> Rows:
        """Return the rows without the tokens that do not stay; `near`: those at a threshold."""
        undecided = self.undecided | (near & self.alive).any(axis=-1)
        return replace(self, alive=self.alive & stays, before=self.alive, undecided=undecided)


def rows_after(logits: Array, possible: Array, inputs: Inputs, chosen: Choices) -> Rows:
    """Run the stages of the chosen order."""
    rounding = ROUNDING["float64" if np.asarray(inputs["logits"]).dtype == np.float64 else "float32"]
    rows = Rows(logits, possible, possible, possible, 1.0, np.zeros(len(logits), bool), rounding)
    for stage in chosen["order"]:
        rows = RUN[stage](rows, inputs, chosen)
    return rows


def _temperature(rows: Rows, inputs: Inputs, chosen: Choices) -> Rows:
    del inputs
    if chosen["temperature"] > 0.0:
        return replace(rows, temperature=rows.temperature * chosen["temperature"])
    likeliest = np.argmax(rows.scores(rows.alive), axis=-1)[:, None] == np.arange(rows.logits.shape[1])
    return rows.after(likeliest, np.zeros_like(likeliest))


def _ranks(values: Array) -> Array:
    return np.argsort(np.argsort(-values, axis=-1, kind="stable"), axis=-1, kind="stable")


def _least(stage: str, chosen: Choices) -> int:
    return int(chosen["least"]) if stage in chosen["least of"] else 1


def _top_k(rows: Rows, inputs: Inputs, chosen: Choices) -> Rows:
    del inputs
    scores = rows.scores(rows.alive)
    count = max(chosen["top_k"], _least("top-k", chosen))
    ranks = _ranks(scores)
    last = np.min(np.where(rows.alive & (ranks < count), scores, np.inf), axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # −inf at tokens that are gone
        near = (last - scores < 10.0 * rows.rounding) & (ranks == count)
    return rows.after(ranks < count, near)


def _top_p(rows: Rows, inputs: Inputs, chosen: Choices) -> Rows:
    del inputs
    p, limit = np.where(rows.alive, rows.masses(chosen["masses"]), 0.0), chosen["top_p"]
    order = np.argsort(-p, axis=-1, kind="stable")
    through = np.empty_like(p)
    np.put_along_axis(through, order, np.cumsum(np.take_along_axis(p, order, axis=-1), axis=-1), axis=-1)
    before, ranks = through - p, _ranks(p)
    free = ranks >= _least("top-p", chosen)
    least = np.where(rows.alive, p, np.inf).min(axis=-1, keepdims=True)
    distance = TOP_P[chosen["top-p rule"]](p, before, through, limit)
    if chosen["top-p rule"] == "one more":  # the token after the one that reaches p
        last = np.max(np.where(distance > 0.0, ranks, 0), axis=-1, keepdims=True)
        return rows.after(ranks <= last + 1, (np.abs(distance) < rows.rounding) & (p > least) & free)
    return rows.after((distance > 0.0) | ~free, (np.abs(distance) < rows.rounding) & free & rows.alive)


TOP_P: Mapping[str, Callable[[Array, Array, Array, float], Array]] = {  # positive where a token stays
    "reaches": lambda p, before, through, limit: limit - before,  # noqa: ARG005
    "one more": lambda p, before, through, limit: limit - before,  # noqa: ARG005
    "exclusive": lambda p, before, through, limit: limit - through,  # noqa: ARG005
    "ascending": lambda p, before, through, limit: (1.0 - before) - limit,  # noqa: ARG005
    "least likely": lambda p, before, through, limit: limit - (1.0 - through),  # noqa: ARG005
    "each": lambda p, before, through, limit: p - (1.0 - limit),  # noqa: ARG005
}


def _min_p(rows: Rows, inputs: Inputs, chosen: Choices) -> Rows:
    del inputs
    p, share = rows.masses(chosen["masses"]), chosen["min_p"]
    largest = np.where(rows.alive, p, 0.0).max(axis=-1, keepdims=True)
    bound = {"of the largest": share * largest, "absolute": share, "share squared": share**2 * largest}
    free = _ranks(np.where(rows.alive, p, -1.0)) >= _least("min-p", chosen)
    if chosen["min-p rule"] == "of logits":
        scores = rows.scores(rows.alive)
        top = scores.max(axis=-1, keepdims=True)
        return rows.after((scores >= share * top) | ~free, (np.abs(scores - share * top) < rows.rounding) & free)
    edge = bound[chosen["min-p rule"]]
    near = (np.abs(p - edge) < rows.rounding * edge) & (p < largest) & free
    return rows.after((p >= edge) | ~free, near)


def _xtc(rows: Rows, inputs: Inputs, chosen: Choices) -> Rows:
    p, threshold = np.where(rows.alive, rows.masses(chosen["masses"]), 0.0), inputs["xtc_threshold"]
    coin, probability = np.asarray(inputs["xtc_coin"], np.float64), inputs["xtc_probability"]
    acts = {"below": coin < probability, "above": coin >= probability, "always": np.ones(len(coin), bool)}
    above = p > threshold
    least = np.where(above, p, np.inf).min(axis=-1, keepdims=True)
    rule = chosen["XTC rule"]
    if rule == "of the batch":
        least = np.full_like(least, least.min())
    removed = above & (p > least)
    if rule in {"the least likely too", "the least likely of several too"}:
        removed = above & (above.sum(axis=-1, keepdims=True) > (rule == "the least likely of several too"))
    if rule == "all but the likeliest":
        removed = above & (p < p.max(axis=-1, keepdims=True))
    if rule == "the likeliest":
        removed = above & (p == p.max(axis=-1, keepdims=True)) & (above.sum(axis=-1, keepdims=True) > 1)
    if rule == "below the threshold":
        removed = rows.alive & ~above
    special = inputs.get("xtc_special_tokens")
    if chosen["special"] and special is not None:
        removed = removed & ~np.isin(np.arange(p.shape[1]), special)
    acting = acts[chosen["coin"]][:, None]
    return rows.after(~(removed & acting), (np.abs(p - threshold) < rows.rounding) & acting)


RUN: Mapping[str, Callable[[Rows, Inputs, Choices], Rows]] = {
    "temperature": _temperature,
    "top-k": _top_k,
    "top-p": _top_p,
    "min-p": _min_p,
    "XTC": _xtc,
}
