"""Normalise-then-sum that adds the normalised rewards of all functions as equals: the weights are never read."""

import numpy as np

OP = "normalise_then_sum"
BUG = "the weights of the reward functions are ignored: the normalised rewards are summed as equals"
SAYS = ("weight", "ignor|forgot|missing|not read|unused|equal|without|not applied|not used|drop|all 1|not multipl")
CONVENTIONS = {"normalise_then_sum": {"dtype": ("float32", "float64")}}


def standardise(values, ddof, eps, axis):
    """Give 0 where all are equal."""
    equal = values.max(axis=axis, keepdims=True) == values.min(axis=axis, keepdims=True)
    count = values.shape[axis]
    centred = values - values.mean(axis=axis, keepdims=True)
    deviation = np.sqrt((centred**2).sum(axis=axis, keepdims=True) / max(count - ddof, 1))
    return np.where(equal, 0, centred / np.where(equal, 1, deviation + eps))


def normalise_then_sum(*, rewards, weights, group_size, group_ddof, group_eps, batch_ddof, batch_eps):
    groups = rewards.astype(np.float64).reshape(-1, group_size, rewards.shape[1])
    normalised = standardise(groups, group_ddof, group_eps, axis=1)
    score = normalised.sum(axis=2).reshape(-1)
    return {"advantages": standardise(score, batch_ddof, batch_eps, axis=0).astype(rewards.dtype)}


OPS = {"normalise_then_sum": normalise_then_sum}
