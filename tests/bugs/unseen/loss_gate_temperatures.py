"""SAPO whose two temperatures went to the wrong sign of the advantage."""

import numpy as np

OP = "policy_loss"
BUG = "the temperatures of positive and negative advantages are exchanged"
SAYS = ("temperature|tau|τ", "exchang|swap|positive|negative|sign|wrong")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("sapo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "kl_estimator": ("k1", "k2", "k3"),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def kl_term(d, name):
    values = {"k1": -d, "k2": d**2 / 2, "k3": np.exp(d) - d - 1}
    slopes = {"k1": np.ones_like(d), "k2": -d, "k3": 1 - np.exp(d)}
    return values[name], slopes[name]


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    beta,
    kl_estimator,
    lengths,
    sapo_temperature_positive,
    sapo_temperature_negative,
    **_,
):
    if mask is None:
        mask = np.ones(policy.shape, bool)
        if lengths is not None:
            mask = np.arange(policy.shape[1])[None] < lengths[:, None]
    loss, gradient = 0.0, np.zeros_like(policy)
    for i, row in enumerate(mask):
        n = int(row.sum())
        if n == 0:
            continue
        lp = policy[i][row].astype(np.float64)
        ratio = np.ones(n) if old is None else np.exp(lp - old[i][row])
        adv = np.broadcast_to(advantages[i], row.shape)[row].astype(np.float64)
        tau = np.where(adv > 0, sapo_temperature_negative, sapo_temperature_positive)
        gate = sigmoid(tau * (ratio - 1))
        value = -4 / tau * gate * adv
        slope = -4 * gate * (1 - gate) * ratio * adv
        if beta:
            kl, kl_slope = kl_term(reference[i][row] - lp, kl_estimator)
            value = value + beta * kl
            slope = slope + beta * kl_slope
        loss += value.mean() / len(policy)
        gradient[i, row] = slope / n / len(policy)
    return {"loss": float(loss), "gradient": gradient}


OPS = {"policy_loss": policy_loss}
