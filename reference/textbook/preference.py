"""Textbook programs of preference learning: what a careful author writes in the data's dtype.

A log-ratio is a sum of differences or a difference of sums; -log sigma is a log-sigmoid, or the logarithm of a sigmoid
where that keeps its digits; the gradient is autograd's, or written by hand with sigma(-z) or 1 - sigma(z).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.textbook.forms import accurate, merged
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
    ref = None if reference is None else _selected(reference, counts)
    rows = _ratios(_selected(policy, counts), ref, counts, averaged=lengths == "mean" or loss in {"simpo", "orpo"})
    given = {"s": label_smoothing or 0.0, "penalty": penalty, "margin": margin, "nll": nll, "beta": beta}
    scalars = {name: _scalar(value, rows.dtype) for name, value in given.items() if value is not None}
    own = loss == "orpo" and attention_mask is None
    forms = [x - rows[0::2] if own else x for x in _pairs(loss, rows[0::2], rows[1::2], scalars)]
    losses = [x.mean() for x in forms]
    gradients = [gradient(x, rows)[0] for x in losses]
    if loss not in {"hinge", "ipo"}:
        by_hand = _by_hand(loss, rows, scalars)
        gradients += [x - np.tile([1.0, 0.0], len(counts) // 2) / (len(counts) / 2.0) if own else x for x in by_hand]
    if lengths == "mean" or loss in {"simpo", "orpo"}:
        gradients = [x / _tokens(counts, rows.dtype) for x in gradients]
    spread = [x.reshape(-1, 1) * counts for x in gradients]
    if loss == "cpo" or attention_mask is not None:
        weight = scalars.get("nll", _scalar(1.0, rows.dtype))
        cost, slope = _likelihood(
            policy, counts if attention_mask is None else np.asarray(attention_mask, bool), weight
        )
        losses, spread = [x + cost for x in losses], [x + slope for x in spread]
    return {"loss": widest(map(accurate, losses)), "gradient": widest(map(accurate, spread))}


def _pairs(loss: str, c: Number, r: Number, scalars: dict[str, Number]) -> list[Number]:
    """Return the losses of the pairs, (P,), in each usual form, ORPO's without its likelihood.

    `c` and `r` are log-ratios of the chosen and the rejected completions, sums or means as the loss asks; log-probs
    where there is no reference.
    """
    beta = scalars["beta"]
    if loss == "hinge":
        return [maximum(0.0, 1.0 - beta * (c - r))]
    if loss == "ipo":
        off = c - r - 1.0 / (2.0 * beta)
        return [off * off]
    if loss == "orpo":
        z, odds = _margin(loss, c, r, scalars), _odds(c, r)
        others = [logsigmoid(merged(odds[1], z)), log(sigmoid(merged(odds[2], z)))]  # differentiated in their own way
        return [-(beta * x) for x in (*_log_sigmoids(z), *others)]
    s, z = scalars["s"], _margin(loss, c, r, scalars)
    return [-(a * (1.0 - s)) - b * s for a, b in zip(_log_sigmoids(z), _log_sigmoids(-z), strict=True)]


def _odds(c: Number, r: Number) -> list[Number]:
    """Return the difference of the log-odds a - log(1 - exp a), in each usual form."""
    return [(c - rest(c)) - (r - rest(r)) for rest in (_by_log1p, _by_expm1, _by_log)]


def _by_log1p(a: Number) -> Number:
    """Return log(1 - exp a), and so do the next two."""
    return log1p(-exp(a))


def _by_expm1(a: Number) -> Number:
    return log(-expm1(a))


def _by_log(a: Number) -> Number:
    return log(1.0 - exp(a))


def _margin(loss: str, c: Number, r: Number, scalars: dict[str, Number]) -> Number:
    """Return the argument of the log-sigmoid, beta inside or outside the difference."""
    beta, apart = scalars["beta"], c - r
    if loss == "orpo":
        return merged(*_odds(c, r))
    if loss == "dpop":
        behind, penalty = maximum(0.0, -c), scalars["penalty"]
        return merged(beta * (apart - penalty * behind), beta * apart - beta * penalty * behind)
    if loss == "simpo":
        margin = scalars["margin"]
        return merged(beta * apart - margin, beta * (apart - margin / beta))
    return merged(beta * apart, beta * c - beta * r)


def _log_sigmoids(z: Number) -> list[Number]:
    return [logsigmoid(z), log(sigmoid(z)), -log1p(exp(-z))]


def _by_hand(loss: str, rows: Number, scalars: dict[str, Number]) -> list[Number]:
    """Return the gradient by the rows, -((1 - s) sigma(-z) - s sigma(z)) / P dz, with sigma(-z) or 1 - sigma(z)."""
    z, s = _margin(loss, rows[0::2], rows[1::2], scalars), scalars["s"]
    moved, pair = gradient(z, rows)[0], np.arange(rows.shape[0]) // 2
    found = []
    for closed in (sigmoid(-z), 1.0 - sigmoid(z)):
        slope = -(closed * (1.0 - s) - (1.0 - closed) * s) / float(z.shape[0])
        slope = scalars["beta"] * slope if loss == "orpo" else slope
        found.append(slope[pair] * moved)
    return found


def _likelihood(policy: npt.ArrayLike, counts: Bools, weight: Number) -> tuple[Number, Number]:
    """Return minus the mean log-prob over all tokens of the chosen rows, times a weight, and its gradient."""
    chosen = counts & (np.arange(len(counts)) % 2 == 0)[:, None]
    tokens = float(max(1, chosen.sum()))
    slope = (-weight / tokens).plus_relative(1.0)  # or times 1 / N
    return -(weight * (_selected(policy, chosen).sum() / tokens)), slope * chosen


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
    rows = _ratios(lp, ref, counts, averaged=False)
    z = strength * (rows - anchor) * sign
    misses = [1.0 - sigmoid(z), sigmoid(-z)]
    losses = [(weight * miss).mean() for miss in misses]
    gradients = [gradient(mean, rows)[0] for mean in losses]
    gradients += [weight * strength * (miss * sigmoid(z)) * -sign / float(len(good)) for miss in misses]
    spread = [x.reshape(-1, 1) * counts for x in gradients]
    return {"loss": widest(map(accurate, losses)), "gradient": widest(map(accurate, spread))}


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
    mean = -(lp.sum(axis=1) / _tokens(counts, lp.dtype)).sum() / float(len(rows))
    return {"loss": mean.limit(), "gradient": gradient(mean, lp)[0].limit()}


def _selected(values: npt.ArrayLike, counts: Bools) -> Number:
    """Return the data as numbers of its dtype, 0 where it is not read."""
    array = np.asarray(values)
    return number(np.where(counts, array, 0.0).astype(array.dtype))


def _scalar(value: float, dtype: str) -> Number:
    """Return a constant as a program may have it: rounded to the dtype, or not."""
    rounded = constant(value, dtype)
    return Number(rounded.value, dtype, abs(float(rounded.value) - value))


def _ratios(lp: Number, ref: Number | None, counts: Bools, *, averaged: bool) -> Number:
    """Return the log-ratio of each row, as a sum of differences or a difference of sums; without parents."""

    def added(x: Number) -> Number:
        return x.sum(axis=1) / _tokens(counts, x.dtype) if averaged else x.sum(axis=1)

    if ref is None:
        return added(lp).detached()
    return merged(added(lp - ref), added(lp) - added(ref)).detached()


def _tokens(counts: Bools, dtype: str) -> Number:
    return number(np.maximum(counts.sum(axis=1), 1), dtype)
