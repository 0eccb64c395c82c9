"""Group advantages that are all divided by one number, the mean of the groups' deviations."""

import numpy as np

OP = "group_advantages"
BUG = "the divisor is the mean of all groups' deviations instead of the group's own"
SAYS = ("deviation|std|divisor", "mean|averag|all groups|own|other groups|across|batch")
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(*, rewards, group_size, scale, ddof, eps, eps_mode, baseline):
    groups = np.reshape(rewards, (-1, group_size)).astype(np.float64)
    if group_size <= ddof:
        return {"advantages": np.zeros_like(rewards)}
    deviations = groups.std(axis=1, ddof=ddof)
    divisor = deviations.mean() + eps
    centred = groups - groups.mean(axis=1, keepdims=True)
    level = groups.max(axis=1) == groups.min(axis=1)
    safe = np.where(level, 1.0, divisor)
    advantages = np.where(level[:, None], 0.0, centred / safe[:, None])
    return {"advantages": advantages.ravel().astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
