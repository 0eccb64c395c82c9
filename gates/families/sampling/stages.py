"""The stages of a sampler, which decide the tokens that stay.

Whether a token stays is a comparison. If rounding may decide one, its row is undecided, and nothing is claimed about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, exp, log, plain, where
from gates.arithmetic.number import FACTOR, UNIT, Floats, Number
from gates.families.program import Choices, Data
from gates.model import Array


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows between stages, sorted by falling score, the lower id first among equals.

    Attributes:
        scores: (B, V) logits or log-probs.
        possible: (B, V) bool, the tokens before any filter.
        alive: (B, V) bool, the remaining tokens.
        before: (B, V) bool, the tokens before the last filter.
        ids: (B, V), the token of each column.
        undecided: (B,) bool, true where rounding may decide which tokens remain.
        temperature: the divisor of the logits so far.
    """

    scores: Value
    possible: Array
    alive: Array
    before: Array
    ids: Array
    undecided: Array
    temperature: float = 1.0

    @classmethod
    def of(cls, x: Value, possible: Array) -> Rows:
        """Return the rows of logits (B, V) in the order of the ids."""
        columns = np.broadcast_to(np.arange(x.shape[1]), x.shape)
        ids = np.lexsort((columns, -np.where(possible, plain(x), -np.inf)))
        at = (np.arange(len(ids))[:, None], ids)
        return cls(x[at], possible[at], possible[at], possible[at], ids, np.zeros(len(ids), bool))

    @property
    def rank(self) -> Array:
        """The rank of each token among the remaining ones."""
        return np.asarray(np.cumsum(self.alive, axis=-1) - 1)

    def probabilities(self, among: Array | None = None) -> tuple[Value, Value, Floats]:
        """Return the softmax over the remaining tokens, log Σ exp of the shifted scores, and the shift."""
        among = self.alive if among is None else among
        m = np.max(np.where(among, plain(self.scores), -np.inf), axis=-1, keepdims=True)
        weights = where(among, exp(self.scores - m), 0.0)
        total = weights.sum(-1, keepdims=True)
        return weights / total, log(total), m

    def masses(self, choice: str) -> Value:
        """Return probabilities over the remaining tokens, or over all."""
        return self.probabilities(self.alive if choice == "survivors" else self.possible)[0]

    def renormalised(self) -> Rows:
        """Subtract log Σ exp as a constant, because later stages depend on differences of scores only."""
        _, log_sum, m = self.probabilities()
        return replace(self, scores=self.scores - (plain(log_sum) + m))

    def by_id(self, values: Any) -> Any:
        """Return (B, V) values in the order of the ids."""
        return values[np.arange(len(self.ids))[:, None], np.argsort(self.ids, axis=-1)]

    def unclear(self, near: Array) -> Rows:
        """Mark rows as undecided in which a remaining token is near a threshold."""
        return replace(self, undecided=self.undecided | np.any(near & self.alive, axis=-1))

    def cut(self, stays: Array, ties: str) -> Rows:
        """Keep the first tokens of each row, and the tokens tied with the last of them by the rule `ties`."""
        value, kept = plain(self.scores), self.alive & stays
        last = np.min(np.where(kept, value, np.inf), axis=-1, keepdims=True)
        tied = self.alive & (value == last)
        if ties == "all":
            kept = kept | tied
        elif ties == "higher-id":
            ranks = np.cumsum(tied[:, ::-1], axis=-1)[:, ::-1]  # 1 for the highest of the tied ids
            kept = np.where(tied, ranks <= np.sum(kept & tied, axis=-1, keepdims=True), kept)
        gap = last[:, 0] - np.max(np.where(self.alive & ~kept, value, -np.inf), axis=-1)
        error = np.max(np.where(self.alive, _error(self.scores), 0.0), axis=-1)
        undecided = self.undecided | ((gap > 0.0) & (gap <= 2.0 * FACTOR * error))
        return replace(self, alive=kept, before=self.alive, undecided=undecided)


def rows_after(data: Data, rows: Rows, chosen: Choices, *, renormalises: bool = False) -> Rows:
    """Run the stages of the chosen order; filters read logits, or with `renormalises` log-probs."""
    for stage in chosen["order"]:
        rows = rows.renormalised() if renormalises and stage != "temperature" else rows
        rows = RUN[stage](rows, data, chosen)
    return rows.renormalised() if renormalises else rows


def _temperature(rows: Rows, data: Data, chosen: Choices) -> Rows:
    tau = chosen["temperature"]
    if tau > 0.0:
        scores = rows.scores / data.scalar(tau, np.asarray(data["logits"]).dtype.name)
        return replace(rows, scores=scores, temperature=rows.temperature * tau)
    return rows.cut(rows.rank < 1, "lower-id")


def _least(stage: str, chosen: Choices) -> int:
    return max(1, int(chosen["least"])) if stage in chosen["least of"] else 1


def _top_k(rows: Rows, data: Data, chosen: Choices) -> Rows:
    del data
    k, rule = max(chosen["top_k"], _least("top-k", chosen)), chosen["top-k rule"]
    if rule == "likeliest":
        return rows.cut(rows.rank < k, chosen["ties"]["top-k"])
    left = rows.alive.sum(axis=-1, keepdims=True)
    kept = {
        "least likely": rows.rank >= left - k,
        "first ids": rows.ids < k,
        "all but k": rows.rank < np.maximum(left - k, 1),
        "removed": (rows.rank >= k) | (left <= k),
    }[rule]
    return replace(rows, alive=rows.alive & kept, before=rows.alive)


def _top_p(rows: Rows, data: Data, chosen: Choices) -> Rows:
    """Keep a token while the mass before it is below p, for sums from either end."""
    del data
    mass = where(rows.alive, rows.masses(chosen["masses"]), 0.0)
    p, ranks, rule = plain(mass), rows.rank, chosen["top-p rule"]
    through = np.cumsum(p, axis=-1)
    distance = TOP_P[rule](p, through - p, through, chosen["top_p"])
    rounding = np.maximum(running_error(mass), running_error(mass[:, ::-1])[:, ::-1]) + _unit(mass)
    free = ranks >= _least("top-p", chosen)
    rows = rows.unclear((np.abs(distance) <= FACTOR * rounding) & free)
    stays = (distance > 0.0) | ~free
    if rule == "one more":  # the token after the one that reaches p
        stays = ranks <= np.max(np.where((distance > 0.0) & rows.alive, ranks, 0), axis=-1, keepdims=True) + 1
    return rows.cut(stays, chosen["ties"]["top-p"])


TOP_P: Mapping[str, Callable[[Array, Array, Array, float], Array]] = {  # positive where a token stays
    "reaches": lambda p, before, through, limit: limit - before,  # noqa: ARG005
    "one more": lambda p, before, through, limit: limit - before,  # noqa: ARG005
    "exclusive": lambda p, before, through, limit: limit - through,  # noqa: ARG005
    "ascending": lambda p, before, through, limit: (1.0 - before) - limit,  # noqa: ARG005
    "least likely": lambda p, before, through, limit: limit - (1.0 - through),  # noqa: ARG005
    "each": lambda p, before, through, limit: p - (1.0 - limit),  # noqa: ARG005
    "of the largest": lambda p, before, through, limit: p - limit * p.max(axis=-1, keepdims=True),  # noqa: ARG005
}


def _min_p(rows: Rows, data: Data, chosen: Choices) -> Rows:
    """Keep tokens of at least min_p times the largest probability, compared as probabilities or log-probs."""
    del data
    p, share, rule = rows.masses(chosen["masses"]), chosen["min_p"], chosen["min-p rule"]
    top = np.arange(len(rows.alive))[:, None], np.argmax(rows.alive, axis=-1)[:, None]
    largest, best = p[top], rows.scores[top]
    differences = MIN_P[rule](p, largest, rows.scores, best, share)
    equal = plain(p) == plain(largest)
    near = np.any([np.abs(plain(each)) <= FACTOR * _error(each) for each in differences], axis=0) & ~equal
    free = rows.rank >= _least("min-p", chosen)
    stays = (plain(differences[0]) >= 0.0) | (equal & (rule in {"of the largest", "share squared"})) | ~free
    return rows.unclear(near & free).cut(stays, chosen["ties"]["min-p"])


MIN_P: Mapping[
    str, Callable[[Value, Value, Value, Value, float], tuple[Value, ...]]
] = {  # at least 0 where a token stays
    "of the largest": lambda p, largest, x, best, share: (p - largest * share, x - (best + float(np.log(share)))),
    "absolute": lambda p, largest, x, best, share: (p - share,),  # noqa: ARG005
    "of logits": lambda p, largest, x, best, share: (x - best * share,),  # noqa: ARG005
    "share squared": lambda p, largest, x, best, share: (p - largest * share**2,),  # noqa: ARG005
    "of log-probs": lambda p, largest, x, best, share: (log(p + 1e-300) - log(largest) * share,),  # noqa: ARG005
    "difference": lambda p, largest, x, best, share: (p - (largest - share),),  # noqa: ARG005
    "below": lambda p, largest, x, best, share: (largest * share - p,),  # noqa: ARG005
}


def _xtc(rows: Rows, data: Data, chosen: Choices) -> Rows:
    """If the coin is below its probability, remove the tokens above the threshold except the least likely."""
    mass = where(rows.alive, rows.masses(chosen["masses"]), 0.0)
    p, error, rule, threshold = plain(mass), _error(mass), chosen["XTC rule"], data["xtc_threshold"]
    coin, probability = np.asarray(data["xtc_coin"], np.float64), data["xtc_probability"]
    acts = {"below": coin < probability, "above": coin >= probability, "always": np.ones(len(coin), bool)}
    acting = acts[chosen["coin"]][:, None]
    above = rows.alive & (p - threshold > 0.0)
    least = np.min(np.where(above, p, np.inf), axis=-1, keepdims=True)
    near = np.abs(p - threshold) <= FACTOR * (error + _unit(mass) * threshold)
    near |= above & (p != least) & (p - least <= 2.0 * FACTOR * error)
    several = above.sum(axis=-1, keepdims=True) > 1
    likeliest = p == p.max(axis=-1, keepdims=True)
    removed = {
        "all but the least likely": above & (p > least),
        "of the batch": above & (p > least.min()),
        "the least likely too": above,
        "the least likely of several too": above & several,
        "all but the likeliest": above & ~likeliest,
        "the likeliest": above & likeliest & several,
        "below the threshold": rows.alive & ~above,
    }[rule]
    special = data.get("xtc_special_tokens")
    if chosen["special"] and special is not None:
        removed = removed & ~np.isin(rows.ids, special)
    rows = rows.unclear(near & acting)
    return replace(rows, alive=rows.alive & ~(removed & acting), before=rows.alive)


RUN: Mapping[str, Callable[[Rows, Data, Choices], Rows]] = {
    "temperature": _temperature,
    "top-k": _top_k,
    "top-p": _top_p,
    "min-p": _min_p,
    "XTC": _xtc,
}


def running_error(p: Value) -> Floats:
    """Return the error bounds of running sums from the first element on."""
    if not isinstance(p, Number):
        return np.zeros(p.shape)
    sums = np.abs(np.cumsum(p.value, axis=-1))
    rounds = np.minimum(sums, p.value / UNIT[p.dtype])  # an addition errs by at most its term
    return np.asarray(np.cumsum(p.error + UNIT[p.dtype] * rounds, axis=-1))


def _error(x: Value) -> Any:
    return x.error if isinstance(x, Number) else 0.0


def _unit(x: Value) -> float:
    return UNIT[x.dtype] if isinstance(x, Number) else 0.0
