"""GMPO whose log-ratio is old - policy: the ratio is upside down, and so is its slope."""

import numpy as np

OP = "policy_loss"
BUG = "the ratio is inverted: old over policy instead of policy over old"
SAYS = ("ratio|policy|old", "inver|exchang|swap|revers|upside|old - policy|old over|old − policy|sign|order")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gmpo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def geometric_mean(diff, adv, low, high):
    """Ratio of a row from its bounded token differences, and which of them move it."""
    bounded = np.minimum(diff, high) if adv > 0 else np.maximum(diff, -low)
    return np.exp(bounded.mean()), bounded == diff


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, **_):
    loss, gradient = 0.0, np.zeros(policy.shape)
    for i in range(len(policy)):
        if mask is not None:
            at = np.flatnonzero(mask[i])
        else:
            at = np.arange(policy.shape[1] if lengths is None else lengths[i])
        if at.size == 0:
            continue
        lp, adv = policy[i, at].astype(np.float64), float(advantages[i])
        direction = -1
        ratio, moving = geometric_mean(direction * (lp - old[i, at]), adv, epsilon_low, epsilon_high)
        row = -ratio * adv
        slope = np.where(moving, direction * row, 0)
        if beta:
            d = reference[i, at] - lp
            row += beta * np.mean(np.exp(d) - d - 1)
            slope = slope + beta * (1 - np.exp(d))
        loss += row / len(policy)
        gradient[i, at] = slope / at.size / len(policy)
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
