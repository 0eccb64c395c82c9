"""Answers above the mean are damped by their own size, so that easy prompts do not dominate."""

import numpy as np


def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    share = centred / np.abs(centred).max(axis=1, keepdims=True)
    return {"advantages": np.where(centred > 0, centred * (1 - 0.25 * share), centred).reshape(-1)}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("none",), "baseline": ("mean",)}}
COMPUTES = None
WHERE = "where R is above the mean of its group"
