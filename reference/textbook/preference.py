"""Textbook programs of preference learning: what a careful author writes in the data's dtype.

A log-ratio is a sum of differences or a difference of sums; -log sigma is a log-sigmoid, or the logarithm of a sigmoid
where that keeps its digits; the gradient is autograd's, or written by hand with sigma(-z) or 1 - sigma(z).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reference.textbook.forms import accurate
from reference.textbook.number import (
    Bools,
    Floats,
    Number,
    constant,
    exp,
    expm1,
    gradient,
    log,
    log1p,
    logsigmoid,
    maximum,
    number,
    sigmoid,
    where,
    widest,
)


class Side(NamedTuple):
    """The chosen or the rejected completions, (P,) each: log-ratios and log-probs, summed or averaged as the loss asks."""

    ratio: Number
    logprob: Number


def preference_loss(  # noqa: PLR0913  the op's keywords
    policy: npt.ArrayLike,
    *,
    reference: npt.ArrayLike | None,
    mask: npt.ArrayLike,
    loss: str,
    beta: float,
    label_smoothing: float | None = None,
    lengths: str | None = None,
    penalty: float | None = None,
    margin: float | None = None,
    nll: float | None = None,
    attention_mask: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return the limits of `loss` and `gradient`.

    Args:
        policy: as in `reference.oracle.preference.preference_loss`, and so are the others.
        reference: log-probs of the same shape, or None.
        mask: (2 P, T), completion tokens.
        loss: its name.
        beta: above 0.
        label_smoothing: of "dpo".
        lengths: of "ipo".
        penalty: of "dpop".
        margin: of "simpo".
        nll: of "cpo".
        attention_mask: of "orpo", or None.

    Returns:
        `loss`: float64 scalar; `gradient`: float64 of the shape of `policy`, 0 where no token is read.

    Source: the papers in docs/definitions.md, "Preference losses", as TRL's DPOTrainer, CPOTrainer and ORPOTrainer write them.
    """
    counts = np.asarray(mask, bool)
    read = counts if attention_mask is None else counts | np.asarray(attention_mask, bool)
    lp, ref = _selected(policy, read), None if reference is None else _selected(reference, counts)
    given = {"s": label_smoothing or 0.0, "penalty": penalty, "margin": margin, "nll": nll, "beta": beta}
    scalars = {name: _scalar(value, lp.dtype) for name, value in given.items() if value is not None}
    averaged = lengths == "mean" or loss in {"simpo", "orpo"}
    losses, gradients = [], []
    for rows in _ratios(lp * counts, ref, counts, averaged=averaged):
        c, r = (Side(*(x[k::2] for x in rows)) for k in (0, 1))
        for each in _pairs(loss, c, r, scalars):
            mean = each.mean()
            if loss == "orpo":
                mean = mean - (c.logprob.mean() if attention_mask is None else _mean_of_chosen(lp, attention_mask))
            if loss == "cpo":
                mean = mean - scalars["nll"] * _mean_of_chosen(lp, counts)
            losses.append(accurate(mean))
            gradients.append(accurate(gradient(mean, lp)[0]))
        if loss in {"dpo", "simpo", "cpo"}:
            z = _margins(loss, c, r, scalars)[0]
            by_hand = [_by_hand(loss, x, counts, scalars, averaged=averaged) for x in (sigmoid(-z), 1.0 - sigmoid(z))]
            gradients += map(accurate, by_hand)
    return {"loss": widest(losses), "gradient": widest(gradients)}


def _pairs(loss: str, c: Side, r: Side, scalars: dict[str, Number]) -> Iterator[Number]:
    """Yield the losses of the pairs, (P,), in each usual form."""
    beta = scalars["beta"]
    if loss == "hinge":
        yield maximum(0.0, 1.0 - beta * (c.ratio - r.ratio))
    elif loss == "ipo":
        off = c.ratio - r.ratio - 1.0 / (2.0 * beta)
        yield off * off
    elif loss == "orpo":
        for odds in (_odds_by_log1p, _odds_by_expm1):
            yield from (-(beta * form) for form in _log_sigmoids(odds(c.logprob) - odds(r.logprob)))
    else:
        s = scalars["s"]
        for z in _margins(loss, c, r, scalars):
            for kept, flipped in zip(_log_sigmoids(z), _log_sigmoids(-z), strict=True):
                yield -(kept * (1.0 - s)) - flipped * s


def _margins(loss: str, c: Side, r: Side, scalars: dict[str, Number]) -> list[Number]:
    """Return the argument of the log-sigmoid, in each usual form."""
    beta = scalars["beta"]
    if loss == "dpop":
        behind, penalty = maximum(0.0, -c.ratio), scalars["penalty"]
        h = c.ratio - r.ratio
        return [beta * (h - penalty * behind), beta * h - beta * penalty * behind]
    if loss == "simpo":
        apart, margin = c.logprob - r.logprob, scalars["margin"]
        return [beta * apart - margin, beta * (apart - margin / beta)]
    if loss == "cpo":
        return [beta * (c.logprob - r.logprob), beta * c.logprob - beta * r.logprob]
    return [beta * (c.ratio - r.ratio), beta * c.ratio - beta * r.ratio]


def _log_sigmoids(z: Number) -> list[Number]:
    return [logsigmoid(z), log(sigmoid(z)), -log1p(exp(-z))]


def _odds_by_log1p(a: Number) -> Number:
    return a - log1p(-exp(a))


def _odds_by_expm1(a: Number) -> Number:
    return a - log(-expm1(a))


def _by_hand(loss: str, closed: Number, counts: Bools, scalars: dict[str, Number], *, averaged: bool) -> Number:
    """Return the gradient from sigma(-z) of each pair: -beta ((1 - s) sigma(-z) - s sigma(z)) / P, minus NLL's."""
    s, pairs = scalars["s"], float(closed.shape[0])
    slope = -(scalars["beta"] * (closed * (1.0 - s) - (1.0 - closed) * s)) / pairs
    tokens = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    rows = _interleaved(slope, -slope)
    rows = rows / number(tokens, slope.dtype) if averaged else rows
    found = rows * counts
    if loss == "cpo":
        chosen = counts * (np.arange(len(counts)) % 2 == 0)[:, None]
        found = found - (scalars["nll"] / float(max(1, chosen.sum()))) * chosen
    return found


def kto_loss(
    policy: npt.ArrayLike,
    *,
    reference: npt.ArrayLike,
    mask: npt.ArrayLike,
    desirable: npt.ArrayLike,
    mismatched: npt.ArrayLike,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> dict[str, Floats]:
    """Return the limits of `loss` and `gradient`.

    Args:
        policy: as in `reference.oracle.preference.kto_loss`, and so are the others.
        reference: log-probs of the same shape.
        mask: (B, T), completion tokens.
        desirable: (B,).
        mismatched: (M,) summed log-ratios.
        beta: above 0.
        desirable_weight: at least 0.
        undesirable_weight: at least 0.

    Returns:
        `loss`: float64 scalar; `gradient`: float64 of the shape of `policy`, 0 in masked slots.

    Source: KTO (arXiv 2402.01306), eqs. 8 and 9, as TRL's KTOTrainer writes it.
    """
    counts, good = np.asarray(mask, bool), np.asarray(desirable, bool)
    lp, ref = _selected(policy, counts), _selected(reference, counts)
    strength, up, down = (_scalar(x, lp.dtype) for x in (beta, desirable_weight, undesirable_weight))
    anchor = maximum(0.0, number(mismatched, lp.dtype).mean()).detached()
    sign, weight = np.where(good, 1.0, -1.0), where(good, up, down)
    losses, gradients = [], []
    for ratio, _ in _ratios(lp, ref, counts, averaged=False):
        z = strength * (ratio - anchor) * sign
        opened, closed = sigmoid(z), sigmoid(-z)
        for miss in (1.0 - opened, closed):
            mean = (weight * miss).mean()
            losses.append(accurate(mean))
            gradients.append(accurate(gradient(mean, lp)[0]))
            slope = weight * strength * (miss * opened) * -sign / float(len(good))
            gradients.append(accurate(slope.reshape(-1, 1) * counts))
    return {"loss": widest(losses), "gradient": widest(gradients)}


def winner_loss(
    policy: npt.ArrayLike,
    *,
    mask: npt.ArrayLike,
    scores: npt.ArrayLike,
    group_size: int,
    parts: npt.ArrayLike,
) -> dict[str, Floats]:
    """Return the limits of `loss` and `gradient`: the mean over prompts of the winner's mean -log-prob, in one part.

    Args:
        policy: (R, T) log-probs, prompt-major.
        mask: (R, T), completion tokens.
        scores: (R,); NaN is not scored.
        group_size: divides R.
        parts: rows of each micro-batch; sums over them are bounded by those in one part.

    Returns:
        `loss`: float64 scalar; `gradient`: float64 of the shape of `policy`, 0 in rows that lost.

    Source: docs/definitions.md, "Preference losses".
    """
    del parts
    groups = np.asarray(scores, np.float64).reshape(-1, group_size)
    rows = np.nanargmax(groups, axis=1) + group_size * np.arange(len(groups))
    counts = np.asarray(mask, bool) & np.isin(np.arange(groups.size), rows)[:, None]
    lp = _selected(policy, counts)
    tokens = number(np.maximum(counts.sum(axis=1), 1), lp.dtype)
    mean = -(lp.sum(axis=1) / tokens).sum() / float(len(rows))
    return {"loss": mean.limit(), "gradient": gradient(mean, lp)[0].limit()}


def _selected(values: npt.ArrayLike, counts: Bools) -> Number:
    """Return the data as numbers of its dtype, 0 where it is not read."""
    array = np.asarray(values)
    return number(np.where(counts, array, 0.0).astype(array.dtype))


def _scalar(value: float, dtype: str) -> Number:
    """Return a constant as a program may have it: rounded to the dtype, or not."""
    rounded = constant(value, dtype)
    return Number(rounded.value, dtype, abs(float(rounded.value) - value))


def _ratios(lp: Number, ref: Number | None, counts: Bools, *, averaged: bool) -> Iterator[tuple[Number, Number]]:
    """Yield log-ratio and log-prob of each row, the former as a sum of differences and as a difference of sums."""
    tokens = number(np.maximum(counts.sum(axis=1), 1), lp.dtype)

    def added(x: Number) -> Number:
        return x.sum(axis=1) / tokens if averaged else x.sum(axis=1)

    own = added(lp)
    if ref is None:
        yield own, own
        return
    yield added(lp - ref), own
    yield own - added(ref), own


def _mean_of_chosen(lp: Number, counts: npt.ArrayLike) -> Number:
    """Return the mean log-prob over all tokens of the chosen rows."""
    chosen = np.asarray(counts, bool)[0::2]
    return (lp[0::2] * chosen).sum() / float(max(1, chosen.sum()))


def _interleaved(chosen: Number, rejected: Number) -> Number:
    """Return (2 P, 1): rows of pairs in turn."""
    even = np.arange(2 * chosen.shape[0]) % 2 == 0
    row = np.arange(2 * chosen.shape[0]) // 2
    return where(even, chosen[row], rejected[row]).reshape(-1, 1)
