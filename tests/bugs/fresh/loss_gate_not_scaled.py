"""SAPO whose gate is 4 times the sigmoid: nothing divides it by the temperature."""

import numpy as np

OP = "policy_loss"
BUG = "the gate is 4σ instead of 4σ/τ: the division by the temperature is missing"
SAYS = ("temperature|tau|τ", "divi|missing|1/τ|factor|scal|lack|without|4σ")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("sapo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def gate(ratio, tau):
    s = np.exp(-np.logaddexp(0, -tau * (ratio - 1)))
    return 4 * s, 4 * tau * s * (1 - s)


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    beta,
    lengths,
    sapo_temperature_positive,
    sapo_temperature_negative,
    **_,
):
    if lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages.reshape(len(policy), -1), 0).astype(np.float64)
    tau = np.where(adv > 0, sapo_temperature_positive, sapo_temperature_negative)
    ratio = np.exp(lp - (lp if old is None else np.where(mask, old, 0)))
    value, derivative = gate(ratio, tau)
    tokens, slopes = -value * adv, -derivative * ratio * adv
    if beta:
        d = np.where(mask, reference, 0) - lp
        tokens = tokens + beta * (np.exp(d) - d - 1)
        slopes = slopes + beta * (1 - np.exp(d))
    n = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    loss = (np.where(mask, tokens, 0) / n).sum() / len(policy)
    return {"loss": float(loss), "gradient": (np.where(mask, slopes, 0) / n / len(policy)).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
