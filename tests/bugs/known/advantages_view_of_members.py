"""The rewards are viewed as (G, P), as if the first completions of all prompts came first."""

import numpy as np


def group_advantages(rewards, group_size, **_):
    by_member = rewards.reshape(group_size, -1)
    mean = by_member.mean(axis=0, keepdims=True)
    std = by_member.std(axis=0, ddof=1, keepdims=True)
    return {"advantages": np.reshape((by_member - mean) / (std + 1e-4), -1)}


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
COMPUTES = "groups of every P-th row"
