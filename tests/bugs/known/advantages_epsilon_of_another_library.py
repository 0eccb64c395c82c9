"""The epsilon is 1e-5 under the root, as layer norms have it, instead of 1e-4 beside the deviation."""

import numpy as np


def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    mean, var = groups.mean(1, keepdims=True), groups.var(1, ddof=1, keepdims=True)
    return {"advantages": ((groups - mean) / np.sqrt(var + 1e-5)).reshape(-1).astype(rewards.dtype)}


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
COMPUTES = "√(var + 1e-05)"
