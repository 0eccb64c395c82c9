"""Filters of the next token as transformers and mlx-lm write them, in the dtype of the logits.

Whether a token stays is a comparison. Where rounding may decide one of a row, no claim is made of that row: its limits are
inf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reference.textbook.number import FACTOR, UNIT, Bools, Floats, Number, constant, exp, log, number, where, widest

Ints = npt.NDArray[np.int64]
STAGES = {"hf": ("top_k", "top_p", "min_p", "xtc"), "mlx-lm": ("top_p", "min_p", "xtc", "top_k")}
LIBRARY = {  # which of the tied tokens stay at top-k, top-p and min-p's least number
    "hf": {"top_k": "all", "top_p": "higher-id", "min_p": "lower-id"},
    "mlx-lm": {"top_k": "lower-id", "top_p": "all", "min_p": "higher-id"},
}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows on their way through the filters, each sorted by falling score, the lower id first among equals.

    Attributes:
        scores: (B, V) logits or log-probs.
        alive: (B, V), true for the tokens that are still there.
        ids: (B, V) the tokens.
        undecided: (B,), true where rounding may decide which tokens are there.
    """

    scores: Number
    alive: Bools
    ids: Ints
    undecided: Bools

    @property
    def rank(self) -> Ints:
        """The place of each token among those that are there."""
        return np.asarray(np.cumsum(self.alive, axis=-1) - 1)

    def probabilities(self) -> tuple[Number, Number, Floats]:
        """The softmax over the tokens that are there, log Σ exp of the shifted scores, and the shift."""
        m = np.max(np.where(self.alive, self.scores.value, -np.inf), axis=-1, keepdims=True)
        weights = where(self.alive, exp(self.scores - m), constant(0.0, self.scores.dtype))
        total = weights.sum(axis=-1, keepdims=True)
        return weights / total, log(total), m


def filtered_logprobs(logits: npt.ArrayLike, **filters: Any) -> Mapping[str, Floats]:
    """Return the limits of `logprobs` (B, V): those of every token that is not forbidden, as if it stayed."""
    return {"logprobs": np.max([limits for limits, _ in _forms(logits, filters)], axis=0)}


def sample_tokens(logits: npt.ArrayLike, **filters: Any) -> Mapping[str, Floats]:
    """Return the limits of `logprobs` as above, and those of `sums` (B, V), C_k / C_V in the order of the ids."""
    found = [(limits, _running_sums(rows)) for limits, rows in _forms(logits, filters)]
    limits, sums = (np.max(each, axis=0) for each in zip(*found, strict=True))
    return {"logprobs": limits, "sums": np.where(np.isinf(limits).any(axis=-1, keepdims=True), np.inf, sums)}


def _forms(logits: npt.ArrayLike, filters: Mapping[str, Any]) -> Iterator[tuple[Floats, Rows]]:
    """Yield for each form of the filters the limits of the log-probs in the order of the ids, and what stays."""
    for scores, possible in _processed(np.asarray(logits), filters):
        for renormalises in (False, True):
            rows = _filtered(scores, possible, filters, renormalises=renormalises)
            limits = widest(_final(rows, filters, every=not renormalises))
            back = np.argsort(rows.ids, axis=-1)
            limits = np.take_along_axis(limits, back, axis=-1)
            yield np.where(rows.undecided[:, None], np.inf, limits), rows


# --- bias and penalties


def _processed(values: npt.NDArray[Any], filters: Mapping[str, Any]) -> Iterator[tuple[Number, Bools]]:
    """Yield the logits with bias and penalties, and which tokens are possible; repeated penalties at once or one by one."""
    possible = np.asarray(values > -np.inf)
    x = number(np.where(possible, values, 0.0), str(values.dtype))
    if filters.get("logit_bias") is not None:
        bias = np.asarray(filters["logit_bias"], np.float64)
        possible = possible & (bias > -np.inf)
        finite = np.where(bias > -np.inf, bias, 0.0)
        x = x + Number(finite, x.dtype, np.where(np.float32(finite) == finite, 0.0, UNIT[x.dtype] * np.abs(finite)))
    if filters["repetition_penalty"] != 1.0:
        seen = _counts(filters["history"], x.shape) > 0
        penalty = constant(filters["repetition_penalty"], x.dtype)
        x = where(seen, where(x > 0.0, x / penalty, x * penalty), x)
    presence, frequency = filters.get("presence_penalty") or 0.0, filters.get("frequency_penalty") or 0.0
    if not (presence or frequency):
        yield x, possible
        return
    counts = _counts(filters["generated"], x.shape)
    yield x - number(counts, x.dtype) * frequency - number(counts > 0, x.dtype) * presence, possible
    x = where(counts > 0, x - presence, x)
    for time in range(int(counts.max())):
        x = where(counts > time, x - frequency, x)
    yield x, possible


def _counts(ids: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    counts = np.zeros((shape[0], shape[1] + 1))
    for row, tokens in zip(counts, np.asarray(ids), strict=True):
        np.add.at(row, tokens, 1.0)  # −1 is none: the last column, which is cut off
    return counts[:, :-1]


# --- filters


def _filtered(x: Number, possible: Bools, filters: Mapping[str, Any], *, renormalises: bool) -> Rows:
    """Run the filters; `renormalises` takes the log-softmax of what is left after each, else the scores stay logits."""
    order = filters["order"]
    scores = x / filters["temperature"] if order == "hf" else x
    ids = np.lexsort((np.broadcast_to(np.arange(x.shape[1]), x.shape), -np.where(possible, scores.value, -np.inf)))
    at = (np.arange(len(ids))[:, None], ids)
    rows = Rows(scores[at], possible[at], ids, np.zeros(len(ids), bool))
    tie, least = filters.get("ties") or "library", filters.get("min_tokens_to_keep") or 1
    for stage in (stage for stage in STAGES[order] if _acts(stage, filters)):
        rows = _renormalised(rows) if renormalises else rows
        ties = LIBRARY[order].get(stage, "") if tie == "library" else tie
        rows = _stage(rows, stage, filters, ties, least if order == "hf" or stage == "min_p" else 1)
    return _renormalised(rows) if renormalises else rows


def _acts(stage: str, filters: Mapping[str, Any]) -> bool:
    if stage == "top_p":
        return bool(filters["top_p"] < 1.0)
    return bool(filters["xtc_probability" if stage == "xtc" else stage] > 0.0)


def _renormalised(rows: Rows) -> Rows:
    """Subtract log Σ exp. As a constant: what follows does not depend on its error, only on the rounding of the difference."""
    _, log_sum, m = rows.probabilities()
    return replace(rows, scores=rows.scores - (log_sum.value + m))


def _stage(rows: Rows, stage: str, filters: Mapping[str, Any], ties: str, least: int) -> Rows:
    if stage == "top_k":
        return _cut(rows, rows.rank < max(filters["top_k"], least), ties)
    if stage == "top_p":
        return _top_p(rows, filters["top_p"], least, ties)
    if stage == "min_p":
        return _min_p(rows, filters["min_p"], least, ties)
    return _xtc(rows, filters)


def _top_p(rows: Rows, top_p: float, least: int, ties: str) -> Rows:
    """Keep a token while the mass before it is below p, added up from the likeliest or from the least likely."""
    p, _, _ = rows.probabilities()
    before = np.cumsum(p.value, axis=-1) - p.value
    falling, rising = _running_error(p), _running_error(p[:, ::-1])[:, ::-1]
    near = np.abs(before - top_p) <= FACTOR * (np.maximum(falling, rising) + UNIT[p.dtype])
    free = rows.rank >= max(1, least)
    undecided = rows.undecided | np.any(near & free & rows.alive, axis=-1)
    return _cut(replace(rows, undecided=undecided), (before < top_p) | ~free, ties)


def _min_p(rows: Rows, min_p: float, least: int, ties: str) -> Rows:
    """Keep what has min_p times the largest probability, compared as probabilities or as log-probs."""
    p, _, _ = rows.probabilities()
    top = np.argmax(rows.alive, axis=-1)[:, None], np.arange(len(rows.alive))[:, None]
    largest = p[top[1], top[0]]
    differences = p - largest * min_p, rows.scores - (rows.scores[top[1], top[0]] + float(np.log(min_p)))
    equal = p.value == largest.value
    near = np.any([np.abs(one.value) <= FACTOR * one.error for one in differences], axis=0) & ~equal
    free = rows.rank >= max(1, least)
    undecided = rows.undecided | np.any(near & free & rows.alive, axis=-1)
    return _cut(replace(rows, undecided=undecided), (differences[0].value >= 0.0) | equal | ~free, ties)


def _xtc(rows: Rows, filters: Mapping[str, Any]) -> Rows:
    """Where the coin is below its probability, remove what is above the threshold but the least likely of it."""
    p, _, _ = rows.probabilities()
    acts = np.asarray(filters["xtc_coin"], np.float64) < filters["xtc_probability"]
    special = np.isin(rows.ids, [] if filters.get("xtc_special_tokens") is None else filters["xtc_special_tokens"])
    distance = p.value - filters["xtc_threshold"]
    above = rows.alive & (distance > 0.0)
    least = np.min(np.where(above, p.value, np.inf), axis=-1, keepdims=True)
    removed = above & (p.value > least) & ~special & acts[:, None]
    near = np.abs(distance) <= FACTOR * (p.error + UNIT[p.dtype] * filters["xtc_threshold"])
    near |= above & (p.value != least) & (p.value - least <= 2.0 * FACTOR * p.error)
    undecided = rows.undecided | (acts & np.any(near & rows.alive, axis=-1))
    return replace(rows, alive=rows.alive & ~removed, undecided=undecided)


def _cut(rows: Rows, stays: Bools, ties: str) -> Rows:
    """Keep the first tokens of each row, and of those tied with the last of them what the rule says."""
    value, kept = rows.scores.value, rows.alive & stays
    last = np.min(np.where(kept, value, np.inf), axis=-1, keepdims=True)
    tied = rows.alive & (value == last)
    if ties == "all":
        kept = kept | tied
    elif ties == "higher-id":
        places = np.cumsum(tied[:, ::-1], axis=-1)[:, ::-1]  # 1 for the highest of the tied ids
        kept = np.where(tied, places <= np.sum(kept & tied, axis=-1, keepdims=True), kept)
    gone = rows.alive & ~kept
    nearest = np.max(np.where(gone, value, -np.inf), axis=-1)
    gap = last[:, 0] - nearest
    error = np.max(np.where(rows.alive, rows.scores.error, 0.0), axis=-1)
    undecided = rows.undecided | ((gap > 0.0) & (gap <= 2.0 * FACTOR * error))
    return replace(rows, alive=kept, undecided=undecided)


# --- results


def _final(rows: Rows, filters: Mapping[str, Any], *, every: bool) -> Iterator[Number]:
    """Yield the log-softmax over what is left, at the temperature in mlx-lm's order; with `every` in its other forms too."""
    tempered = [rows.scores]
    if filters["order"] == "mlx-lm" and filters["temperature"] != 1.0:
        inverse = constant(1.0, rows.scores.dtype) / filters["temperature"]
        tempered = [rows.scores / filters["temperature"], rows.scores * inverse]
    for scores in tempered:
        p, log_sum, m = replace(rows, scores=scores).probabilities()
        yield (scores - m) - log_sum
        if not every:
            continue
        yield scores - (log_sum + m)
        logarithm = log(where(p.value > 0.0, p, constant(1.0, p.dtype)))
        logarithm.void = logarithm.void | (p.value <= 0.0)
        yield logarithm


def _running_error(p: Number) -> Floats:
    """Return the bounds of running sums from the first element on, and of their division by the whole."""
    sums = np.abs(np.cumsum(p.value, axis=-1))
    rounds = np.minimum(sums, p.value / UNIT[p.dtype])  # no addition errs by more than its term
    return np.asarray(np.cumsum(p.error + UNIT[p.dtype] * rounds, axis=-1))


def _running_sums(rows: Rows) -> Floats:
    """Return the bounds of C_k / C_V in the order of the ids, with the rounding of a uniform to the dtype."""
    found = _by_id(rows.probabilities()[0], rows.ids)
    error = _running_error(found)
    return FACTOR * (error + error[:, -1:] + 2.0 * UNIT[found.dtype])


def _by_id(values: Number, ids: Ints) -> Number:
    back = np.argsort(ids, axis=-1)
    return values[np.arange(len(ids))[:, None], back]
