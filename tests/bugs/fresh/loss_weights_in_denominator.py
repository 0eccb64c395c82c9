"""DAPO with off-policy weights whose token mean is a weighted one: the weights are normalised away."""

import numpy as np

OP = "policy_loss"
BUG = "the surrogate is divided by the sum of the off-policy weights instead of by the number of tokens"
SAYS = ("weight", "denominator|divi|normali|weighted mean|sum of")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (True, False),
    }
}


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    epsilon_low,
    epsilon_high,
    beta,
    lengths,
    weights=None,
    delta=None,
    **_,
):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    keep = np.ones(policy.shape, bool) if mask is None else mask
    lp = policy[keep].astype(np.float64)
    if lp.size == 0:
        return {"loss": 0.0, "gradient": np.zeros_like(policy)}
    adv, w = (
        np.ones(lp.size)
        if x is None
        else np.broadcast_to(x.reshape(len(policy), -1), policy.shape)[keep].astype(np.float64)
        for x in (advantages, weights)
    )
    ratio = np.ones(lp.size) if old is None else np.exp(lp - old[keep])
    stopped = np.where(adv > 0, ratio > 1 + epsilon_high, (adv == 0) | (ratio < 1 - epsilon_low))
    held = np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    surrogate = -adv * np.where(stopped, held, ratio)
    loss = (w * surrogate).sum() / w.sum()
    slopes = np.where(stopped, 0, w * surrogate) / w.sum()
    if beta:
        d = reference[keep] - lp
        loss += beta * np.mean(np.expm1(d) - d)
        slopes -= beta * np.expm1(d) / lp.size
    gradient = np.zeros_like(policy)
    gradient[keep] = slopes
    return {"loss": float(loss), "gradient": gradient}


OPS = {"policy_loss": policy_loss}
