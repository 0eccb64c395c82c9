"""RLOO with the KL in the reward, where it counts as a bonus: beta times the divergence is added."""

import numpy as np

OP = "rewarded_loss"
BUG = "the KL is added to the reward instead of subtracted: its sign is wrong"
SAYS = ("kl|beta|divergence|penalty", "sign|add|bonus|exchang|swap|negat|reference - old|reference − old")
CONVENTIONS = {"rewarded_loss": {}}


def leave_one_out(rewards, group_size):
    groups = rewards.reshape(-1, group_size)
    baseline = (groups.sum(axis=1, keepdims=True) - groups) / (group_size - 1)
    equal = groups.max(axis=1, keepdims=True) == groups.min(axis=1, keepdims=True)
    return np.where(equal, 0, groups - baseline).reshape(-1)


def rewarded_loss(*, policy, old, reference, mask, rewards, group_size, beta):
    lp, before, ref = (np.where(mask, x, 0).astype(np.float64) for x in (policy, old, reference))
    kl = (before - ref).sum(axis=1)
    advantages = leave_one_out(rewards + beta * kl, group_size)
    ratio = np.exp((lp - before).sum(axis=1))
    weighted = np.where(mask.any(axis=1), -ratio * advantages, 0)
    gradient = np.where(mask, weighted[:, None], 0) / len(policy)
    return {"loss": float(weighted.mean()), "gradient": gradient.astype(policy.dtype), "advantages": advantages}


OPS = {"rewarded_loss": rewarded_loss}
