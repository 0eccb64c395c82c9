"""GMPO that clamps each log-ratio on both sides, whatever the sign of the advantage."""

import numpy as np

OP = "policy_loss"
BUG = "the log-ratio of a token is clipped on both sides whatever the sign of the advantage"
SAYS = ("both|sign|two side|either|two-sided|symmetric", "clip|clamp|held|bound")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gmpo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, **_):
    if lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    rows = len(policy)
    n = np.maximum(mask.sum(axis=1), 1)[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    diff = lp - np.where(mask, old, 0)
    adv = advantages.astype(np.float64)[:, None]

    held = np.clip(diff, -epsilon_low, epsilon_high)
    ratio = np.exp((held * mask).sum(axis=1, keepdims=True) / n)
    row = np.where(mask.any(axis=1, keepdims=True), -ratio * adv, 0)
    loss = row.mean()
    gradient = np.where(held == diff, -ratio * adv, 0) * mask / n / rows
    if beta:
        d = np.where(mask, reference, 0) - lp
        loss += beta * ((np.exp(d) - d - 1) * mask / n).sum() / rows
        gradient += beta * (1 - np.exp(d)) * mask / n / rows
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
