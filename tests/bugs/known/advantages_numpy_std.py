"""np.std divides by n where torch.std, which the port replaces, divides by n - 1."""

import numpy as np


def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size)
    mean = groups.mean(axis=1, keepdims=True)
    std = np.std(groups, axis=1, keepdims=True)
    return {"advantages": ((groups - mean) / (std + 1e-4)).ravel()}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {
    "group_advantages": {
        "scale": ("group",),
        "ddof": (1,),
        "eps": (1e-4,),
        "eps_mode": ("add",),
        "baseline": ("mean",),
    }
}
COMPUTES = "group z-score with ddof 0 (asked: 1)"
