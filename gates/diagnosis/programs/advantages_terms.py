"""Baselines and divisors of a table of rewards, (groups, members), in the forward definition of the advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, maximum, plain, sqrt, where
from gates.diagnosis.program import Choices, Data
from gates.model import Array


def count(scored: Array, less: float = 0.0) -> Array:
    """Return the scored members of each group less a number, at least 1, (groups, 1)."""
    return np.asarray(np.maximum(scored.sum(axis=1, keepdims=True) - less, 1.0))


def total(groups: Value, scored: Array) -> Value:
    """Add up the scored members of each group, (groups, 1)."""
    return where(scored, groups, 0.0).sum(1, keepdims=True)


def mean(groups: Value, scored: Array) -> Value:
    """Return the mean of the scored members of each group, (groups, 1)."""
    return total(groups, scored) / count(scored)


def _batch_mean(groups: Value, scored: Array) -> Value:
    return total(groups, scored).sum(0, keepdims=True) / float(max(scored.sum(), 1))


def _ranked(groups: Value, scored: Array, share: float) -> Value:
    """Return the member at a share of the sorted scored ones, the mean of two where it falls between them."""
    order = np.argsort(np.where(scored, plain(groups), np.inf), axis=1)
    place = share * (count(scored) - 1.0)
    rows = np.arange(len(order))[:, None]
    low, high = (groups[rows, order[rows, f(place).astype(np.int64)]] for f in (np.floor, np.ceil))
    return (low + high) * 0.5


def _less_others(groups: Value, scored: Array) -> Value:
    return where(count(scored) > 1.0, groups - (total(groups, scored) - groups) / count(scored, 1.0), 0.0)


def _less_batch_others(groups: Value, scored: Array) -> Value:
    every = total(groups, scored).sum(0, keepdims=True)
    return groups - (every - groups) / float(max(scored.sum() - 1, 1))


BASELINES: Mapping[str, Callable[[Value, Array], Value]] = {
    "mean": lambda groups, scored: groups - mean(groups, scored),
    "leave-one-out": _less_others,
    "batch mean": lambda groups, scored: groups - _batch_mean(groups, scored),
    "batch leave-one-out": _less_batch_others,
    "median": lambda groups, scored: groups - _ranked(groups, scored, 0.5),
    "largest": lambda groups, scored: groups - _ranked(groups, scored, 1.0),
    "smallest": lambda groups, scored: groups - _ranked(groups, scored, 0.0),
    "first": lambda groups, scored: groups - groups[:, :1],  # noqa: ARG005
    "sum": lambda groups, scored: groups - total(groups, scored),
    "none": lambda groups, scored: groups,  # noqa: ARG005
}


def divided(data: Data, chosen: Choices, groups: Value, centred: Value, scored: Array) -> Value:
    """Return the centred rewards over the divisor, as the scale, its ε and its ddof are chosen."""
    if chosen["scale"] == "none":
        return centred
    if chosen["scale"] == "batch":
        groups, among = groups.reshape(1, -1), scored.reshape(1, -1)
    else:
        among = scored
    off = centred.reshape(*groups.shape) if chosen["spread"] == "of the centred" else groups
    squared = VARIANCES.get(chosen["spread"], _variance)(off, among, float(chosen["ddof"]))
    if chosen["scale"] == "mean of the groups'":
        divisor = sqrt(squared).sum(0, keepdims=True) / float(len(scored))
    else:
        divisor = SPREADS[chosen["spread"]](groups, among, squared)
    if divisor.shape == groups.shape:  # one for each member
        divisor, squared = divisor.reshape(*centred.shape), squared.reshape(*centred.shape)
    return _quotient(data, chosen, centred, divisor, squared)


def _quotient(data: Data, chosen: Choices, centred: Value, divisor: Value, squared: Value) -> Value:
    mode = chosen["eps_mode"]
    if mode == "nothing":
        return centred / divisor
    eps = data.scalar(chosen["eps"], np.asarray(data["rewards"]).dtype.name)
    if mode == "inside":
        return centred / sqrt((squared if chosen["spread"] == "deviation" else divisor * divisor) + eps)
    if mode == "larger":
        return centred / maximum(divisor, eps)
    if mode == "threshold":
        return where(divisor < eps, 0.0, centred / divisor)
    if mode == "one below":
        return centred / where(divisor < eps, divisor * 0.0 + 1.0, divisor)
    return centred / (divisor + eps)


def _variance(groups: Value, scored: Array, ddof: float) -> Value:
    """Return Σ(x − mean)² / (n − ddof) of each group, (groups, 1)."""
    off = where(scored, groups - mean(groups, scored), 0.0)
    return (off * off).sum(1, keepdims=True) / count(scored, ddof)


def _about_zero(groups: Value, scored: Array, ddof: float) -> Value:
    return total(groups * groups, scored) / count(scored, ddof)


def _of_others(groups: Value, scored: Array, ddof: float) -> Value:
    """Return the variance of the other members, (groups, members)."""
    members = np.arange(scored.shape[1])
    others = np.array([members[members != one] for one in members])
    table, among = groups[:, others], scored[:, others]
    middle = where(among, table, 0.0).sum(-1, keepdims=True) / np.maximum(among.sum(-1, keepdims=True), 1.0)
    off = where(among, table - middle, 0.0)
    return (off * off).sum(-1) / np.maximum(among.sum(-1) - ddof, 1.0)


VARIANCES: Mapping[str, Callable[[Value, Array, float], Value]] = {
    "about zero": _about_zero,
    "of the others": _of_others,
}


def _mean_absolute(groups: Value, scored: Array, squared: Value) -> Value:  # noqa: ARG001
    return mean(absolute(groups - mean(groups, scored)), scored)


SPREADS: Mapping[str, Callable[[Value, Array, Value], Value]] = {
    "deviation": lambda groups, scored, squared: sqrt(squared),  # noqa: ARG005
    "about zero": lambda groups, scored, squared: sqrt(squared),  # noqa: ARG005
    "of the centred": lambda groups, scored, squared: sqrt(squared),  # noqa: ARG005
    "of the others": lambda groups, scored, squared: sqrt(squared),  # noqa: ARG005
    "variance": lambda groups, scored, squared: squared,  # noqa: ARG005
    "standard error": lambda groups, scored, squared: sqrt(squared) / np.sqrt(count(scored)),  # noqa: ARG005
    "mean absolute deviation": _mean_absolute,
    "range": lambda groups, scored, squared: _ranked(groups, scored, 1.0) - _ranked(groups, scored, 0.0),  # noqa: ARG005
    "largest": lambda groups, scored, squared: _ranked(absolute(groups - mean(groups, scored)), scored, 1.0),  # noqa: ARG005
    "mean": lambda groups, scored, squared: absolute(mean(groups, scored)),  # noqa: ARG005
}
