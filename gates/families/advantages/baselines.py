"""The baselines of advantages: each takes (groups, members) rewards and whether they are scored, and returns rewards less it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.arithmetic.functions import Value, plain, where
from gates.arithmetic.number import Number, number
from gates.model import Array


def count(scored: Array, less: float = 0.0) -> Array:
    """Return the number of scored members of each group less `less`, at least 1, (groups, 1)."""
    return np.asarray(np.maximum(scored.sum(axis=1, keepdims=True) - less, 1.0))


def total(groups: Value, scored: Array) -> Value:
    """Return the sum of the scored members of each group, (groups, 1)."""
    return where(scored, groups, 0.0).sum(1, keepdims=True)


def mean(groups: Value, scored: Array) -> Value:
    """Return the mean of the scored members of each group, (groups, 1)."""
    return total(groups, scored) / count(scored)


def _batch_mean(groups: Value, scored: Array) -> Value:
    return mean(groups.reshape(1, -1), scored.reshape(1, -1))


def ranked(groups: Value, scored: Array, share: float) -> Value:
    """Return the quantile `share` of the scored members, the mean of two between members."""
    order = np.argsort(np.where(scored, plain(groups), np.inf), axis=1)
    rank = share * (count(scored) - 1.0)
    rows = np.arange(len(order))[:, None]
    low, high = (groups[rows, order[rows, f(rank).astype(np.int64)]] for f in (np.floor, np.ceil))
    return (low + high) * 0.5


def _less_others(groups: Value, scored: Array) -> Value:
    return where(count(scored) > 1.0, groups - (total(groups, scored) - groups) / count(scored, 1.0), 0.0)


def _less_next_group(groups: Value, scored: Array) -> Value:
    return groups - mean(groups, scored)[np.roll(np.arange(len(scored)), -1)]


def _less_other_groups(groups: Value, scored: Array) -> Value:
    sums, members = total(groups, scored), scored.sum(axis=1, keepdims=True)
    return groups - (sums.sum(0, keepdims=True) - sums) / np.maximum(members.sum() - members, 1.0)


def _less_largest_other(groups: Value, scored: Array) -> Value:
    members = np.arange(scored.shape[1])
    if members.size < 2:
        return groups
    others = np.array([members[members != member] for member in members])
    values, among = np.where(scored, plain(groups), -np.inf)[:, others], scored[:, others].any(axis=-1)
    largest = others[members, values.argmax(axis=-1)]
    return groups - where(among, groups[np.arange(len(scored))[:, None], largest], 0.0)


def _less_members_before(groups: Value, scored: Array) -> Value:
    members = np.arange(scored.shape[1])
    before = members[:, None] > members
    sums = (where(scored, groups, 0.0).reshape(len(scored), 1, -1) * before).sum(-1)
    return groups - sums / np.maximum((scored[:, None, :] & before).sum(axis=-1), 1.0)


def _less_halves(groups: Value, scored: Array) -> Value:
    """Return the rewards less the mean of their half of the batch."""
    first = (np.arange(scored.size) < scored.size // 2).reshape(scored.shape)
    means = [_batch_mean(groups, scored & rows) for rows in (first, ~first)]
    return groups - where(first, means[0] * np.ones(scored.shape), means[1] * np.ones(scored.shape))


def _less_batch_others(groups: Value, scored: Array) -> Value:
    every = total(groups, scored).sum(0, keepdims=True)
    return groups - (every - groups) / float(max(scored.sum() - 1, 1))


def _share(groups: Value, scored: Array) -> Value:
    """Return n / (n − 1) of each group, rounded once."""
    members = count(scored)
    return (number(members, groups.dtype) if isinstance(groups, Number) else members) / count(scored, 1.0)


def _zero_if_alone(centred: Value, scored: Array) -> Value:
    """Return the centred rewards, 0 in groups with one scored member."""
    return where(count(scored) > 1.0, centred, 0.0)


LEAVE_ONE_OUT = ("leave-one-out", "share of the distance", "distance of the shares")  # forms of one baseline
BASELINES: Mapping[str, Callable[[Value, Array], Value]] = {
    "mean": lambda groups, scored: groups - mean(groups, scored),
    "leave-one-out": _less_others,
    "share of the distance": lambda groups, scored: _zero_if_alone(
        (groups - mean(groups, scored)) * _share(groups, scored), scored
    ),
    "distance of the shares": lambda groups, scored: _zero_if_alone(
        groups * _share(groups, scored) - mean(groups, scored) * _share(groups, scored), scored
    ),
    "batch": lambda groups, scored: groups - _batch_mean(groups, scored),
    "batch leave-one-out": _less_batch_others,
    "median": lambda groups, scored: groups - ranked(groups, scored, 0.5),
    "largest": lambda groups, scored: groups - ranked(groups, scored, 1.0),
    "smallest": lambda groups, scored: groups - ranked(groups, scored, 0.0),
    "first": lambda groups, scored: groups - groups[:, :1],  # noqa: ARG005
    "sum": lambda groups, scored: groups - total(groups, scored),
    "others over G": lambda groups, scored: groups - (total(groups, scored) - groups) / count(scored),
    "group over G − 1": lambda groups, scored: groups - total(groups, scored) / count(scored, 1.0),
    "sum of the others": lambda groups, scored: groups - (total(groups, scored) - groups),
    "group over P": lambda groups, scored: groups - total(groups, scored) / float(len(scored)),
    "shrunk": lambda groups, scored: (groups - mean(groups, scored)) * (count(scored, 1.0) / count(scored)),
    "added": lambda groups, scored: groups + mean(groups, scored),
    "others added": lambda groups, scored: groups + (total(groups, scored) - groups) / count(scored, 1.0),
    "next group": _less_next_group,
    "other groups": _less_other_groups,
    "next member": lambda groups, scored: groups - groups[:, np.roll(np.arange(scored.shape[1]), -1)],
    "largest other": _less_largest_other,
    "members before": _less_members_before,
    "last": lambda groups, scored: groups - groups[:, -1:],  # noqa: ARG005
    "previous group": lambda groups, scored: groups - mean(groups, scored)[np.arange(len(scored)) - 1],
    "first group": lambda groups, scored: groups - mean(groups, scored)[:1],
    "half batch": _less_halves,
    "none": lambda groups, scored: groups,  # noqa: ARG005
}
