"""PPO whose dual clip is applied to every token and not to those of negative advantage alone."""

import numpy as np

OP = "policy_loss"
BUG = "the dual clip acts on positive advantages too: their loss becomes -delta times the advantage, without a gradient"
SAYS = ("dual|delta|δ", "positive|negative|whatever the sign|any sign|every")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("ppo",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def dual_clip(ratio, adv, low, high, delta):
    first, second = ratio * adv, np.clip(ratio, 1 - low, 1 + high) * adv
    objective, slope = np.minimum(first, second), np.where(first <= second, first, 0)
    if delta is not None:
        floor = delta * adv
        stopped = floor > objective
        objective, slope = np.where(stopped, floor, objective), np.where(stopped, 0, slope)
    return -objective, -slope


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if lengths is not None:
        raise NotImplementedError
    keep = np.ones(policy.shape, bool) if mask is None else mask
    lp = policy[keep].astype(np.float64)
    ratio = np.exp(lp - (lp if old is None else old[keep]))
    adv = np.broadcast_to(advantages.reshape(len(policy), -1), policy.shape)[keep].astype(np.float64)
    value, slope = dual_clip(np.where(adv == 0, 1, ratio), adv, epsilon_low, epsilon_high, delta)
    if beta:
        d = reference[keep] - lp
        value += beta * (np.exp(d) - d - 1)
        slope += beta * (1 - np.exp(d))
    gradient = np.zeros(policy.shape)
    gradient[keep] = slope / max(len(lp), 1)
    return {"loss": float(value.sum() / max(len(lp), 1)), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
