"""Textbook programs of advantages: two-pass deviations and backward recurrences in the data's dtype.

The one-pass deviation, sqrt(mean(x²) − mean(x)²), is none of them: it has no correct digit where rewards lie together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reference.textbook.number import Bools, Floats, Number, constant, number, sqrt, where, widest
from reference.textbook.rows import back, grid, slots


def group_advantages(
    rewards: npt.ArrayLike,
    group_size: int,
    *,
    scale: str,
    ddof: int | None,
    eps: float | None,
    eps_mode: str | None,
    baseline: str,
) -> dict[str, Floats]:
    """Return the limits of `advantages`.

    Args:
        rewards: (B,) float32 or float64, prompt-major; NaN is not scored.
        group_size: G, divides B.
        scale: "group", "batch" or "none".
        ddof: 0 or 1; None with scale "none".
        eps: at least 0; None with scale "none".
        eps_mode: "add", "inside" or "threshold"; None with scale "none".
        baseline: "mean" or "leave-one-out".

    Returns:
        `advantages`: (B,) float64; inf where the divisor may be 0.

    Source: TRL's GRPOTrainer and RLOOTrainer; verl's `compute_grpo_outcome_advantage` and `compute_rloo_outcome_advantage`.
    """
    table = np.asarray(rewards).reshape(-1, group_size)
    scored = ~np.isnan(table)
    groups = number(np.nan_to_num(table))
    compared = groups if scale == "group" else groups.reshape(1, -1)
    forms = []
    for difference in _differences(groups, scored, baseline):
        if scale == "none" or ddof is None or eps is None:
            forms.append(difference)
            continue
        among = scored if scale == "group" else scored.reshape(1, -1)
        variance = _variance(compared, among, ddof)
        forms += [where(scored, quotient, 0.0) for quotient in _quotients(difference, variance, eps, eps_mode)]
    return {"advantages": widest(forms).reshape(-1)}


def normalise_then_sum(
    rewards: npt.ArrayLike,
    weights: npt.ArrayLike,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
) -> dict[str, Floats]:
    """Return the limits of `advantages`.

    Args:
        rewards: (B, F) float32 or float64; NaN is not scored.
        weights: (F,) of the same dtype.
        group_size: G, divides B.
        group_ddof: 0 or 1.
        group_eps: at least 0.
        batch_ddof: 0 or 1.
        batch_eps: at least 0.

    Returns:
        `advantages`: (B,) float64; inf where a divisor may be 0.

    Source: TRL's GRPOTrainer with `multi_objective_aggregation="normalize_then_sum"`.
    """
    table = np.asarray(rewards)
    factors = np.asarray(weights)
    stacked = np.swapaxes(table.reshape(-1, group_size, table.shape[1]), 1, 2)  # (prompts, F, G)
    scored = ~np.isnan(stacked)
    values = number(np.nan_to_num(stacked).reshape(-1, group_size))
    among = scored.reshape(-1, group_size)
    counted = scored.any(axis=1).reshape(1, -1)
    forms: list[Number] = []
    for score in _z_scores(values, among, group_ddof, group_eps):
        weighted = score.reshape(*stacked.shape) * number(factors[None, :, None])
        total = where(counted, weighted.sum(axis=1).reshape(1, -1), 0.0)
        forms.extend(_z_scores(total, counted, batch_ddof, batch_eps))
    return {"advantages": widest(forms).reshape(-1)}


def gae(
    rewards: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    gamma: float,
    lam: float,
    bootstrap: npt.ArrayLike | None = None,
    terminal: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """Return the limits of `advantages`: of the recurrence of A, and of the one of λ-returns less V.

    Args:
        rewards: (B, T), or (N,) with lengths: float32 or float64.
        values: of the same shape and dtype.
        gamma: the discount.
        lam: the decay of the trace.
        bootstrap: (B,), or None: 0.
        terminal: bool of the shape of the rewards, or None: nowhere.
        mask: (B, T), or None.
        lengths: (B,), or None.

    Returns:
        `advantages`: float64 of the shape of the rewards, 0 in slots without a token.

    Source: Schulman et al., arXiv 1506.02438, eq. 16; λ-returns: Sutton and Barto, 2nd ed., section 12.1.
    """
    shape = np.shape(rewards)
    valid, place = slots(shape, mask, lengths)
    reward, value = grid(rewards, valid, place), grid(values, valid, place)
    ends = np.zeros(valid.shape, bool)
    if terminal is not None:
        ends[place] = np.asarray(terminal, bool).reshape(-1)
    rows = len(valid)
    dtype = reward.dtype
    following = constant(np.zeros(rows), dtype) if bootstrap is None else number(bootstrap, dtype)
    discount, decay = (constant(x, dtype).plus_relative(1.0) for x in (gamma, lam))
    trace, left = discount * decay, 1.0 - decay
    advantage, returned = constant(np.zeros(rows), dtype), following
    found = np.zeros(valid.shape)
    for t in reversed(range(valid.shape[1])):
        here, live = valid[:, t], 1.0 - ends[:, t]
        r, v = reward[:, t], value[:, t]
        next_advantage = r + discount * following * live - v + trace * advantage * live
        next_returned = r + discount * live * (left * following + decay * returned)
        found[here, t] = widest([next_advantage, next_returned - v])[here]
        advantage = where(here, next_advantage, advantage)
        returned = where(here, next_returned, returned)
        following = where(here, v, following)
    return {"advantages": back(found, place, shape)}


def _differences(groups: Number, scored: Bools, baseline: str) -> Iterator[Number]:
    """Yield R − baseline in each usual form, 0 where not scored."""
    count = scored.sum(axis=1, keepdims=True).astype(np.float64)
    total = groups.sum(axis=1, keepdims=True)
    mean = total / np.maximum(count, 1.0)
    if baseline == "mean":
        yield where(scored, groups - mean, 0.0)
        return
    others = np.maximum(count - 1.0, 1.0)
    several = scored & (count > 1.0)
    yield where(several, groups - (total - groups) / others, 0.0)
    share = number(count, groups.dtype) / others  # n / (n − 1), rounded once
    yield where(several, (groups - mean) * share, 0.0)
    yield where(several, groups * share - mean * share, 0.0)


def _variance(values: Number, scored: Bools, ddof: int) -> Number:
    """Return Σ(x − mean)² / (n − ddof) of each row, (rows, 1): void for one reward with ddof 1, unless others are missing."""
    (centred,) = _differences(values, scored, "mean")
    count: Floats = scored.sum(axis=1, keepdims=True) - float(ddof)
    count = np.where(scored.all(axis=1, keepdims=True), count, np.maximum(count, 1.0))
    return (centred * centred).sum(axis=1, keepdims=True) / count


def _quotients(difference: Number, variance: Number, eps: float, eps_mode: str | None) -> Iterator[Number]:
    """Yield the difference over the divisor, and times its reciprocal."""
    divisor = sqrt(variance + eps) if eps_mode == "inside" else sqrt(variance)
    if eps_mode == "add":
        divisor = divisor + eps
    for quotient in (difference / divisor, difference * (1.0 / divisor)):
        yield where(divisor < eps, 0.0, quotient) if eps_mode == "threshold" else quotient


def _z_scores(values: Number, scored: Bools, ddof: int, eps: float) -> Iterator[Number]:
    """Yield (x − mean) / (std + ε) of each row, 0 where not scored."""
    (centred,) = _differences(values, scored, "mean")
    for quotient in _quotients(centred, _variance(values, scored, ddof), eps, "add"):
        yield where(scored, quotient, 0.0)
