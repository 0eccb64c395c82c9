"""Group advantages in NumPy; a group of equal rewards gives 0."""

import numpy as np


def group_advantages(*, rewards, group_size, ddof, eps):
    """Return rewards minus their group's mean, divided by the group's deviation plus eps."""
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=ddof, keepdims=True) + eps
    varies = np.ptp(groups, axis=1, keepdims=True) > 0
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "baseline": ("mean",), "eps_mode": ("add",)}}
