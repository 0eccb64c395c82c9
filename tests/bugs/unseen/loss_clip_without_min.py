"""REINFORCE++ that multiplies the clipped ratio by the advantage and never compares it with the plain one."""

import numpy as np

OP = "policy_loss"
BUG = "the surrogate is the clipped ratio times the advantage alone, without the minimum with the unclipped one"
SAYS = (
    "unclipped|minimum|no min|without the min|only|alone|pessimis|both sides|whatever the sign|any sign|either sign|regardless",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce++",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "weights": (False,),
    }
}


def surrogate(ratio, adv, low, high):
    inside = (ratio >= 1 - low) & (ratio <= 1 + high)
    held = np.clip(ratio, 1 - low, 1 + high)
    stopped = ~inside
    return -held * adv, np.where(stopped, 0, -held * adv)


def policy_loss(*, policy, mask, old, advantages, epsilon_low, epsilon_high, lengths, delta=None, **_):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    keep = np.ones(policy.shape, bool) if mask is None else mask
    total = keep.sum()
    gradient = np.zeros(policy.shape)
    loss = 0.0
    for i in range(len(policy)):
        chosen = keep[i]
        lp = policy[i, chosen].astype(np.float64)
        before = lp if old is None else old[i, chosen]
        adv = advantages[i] if advantages.ndim == 1 else advantages[i, chosen]
        value, slope = surrogate(np.exp(lp - before), np.float64(adv), epsilon_low, epsilon_high)
        loss += value.sum() / max(total, 1)
        gradient[i, chosen] = slope / max(total, 1)
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
