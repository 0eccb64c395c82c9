"""VESPO whose taper lacks its constant: at a ratio of 1 a token weighs exp(-lambda) and not 1."""

import numpy as np

OP = "policy_loss"
BUG = "the taper lacks its factor exp(lambda), so that it is not 1 at a ratio of 1"
SAYS = ("taper|weight|λ|lambda", "factor|constant|normali|scale|lack|missing|exp(λ)|exp(lambda)|e^λ|without")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("vespo",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def taper(log_ratio, power, rate):
    return np.exp(power * log_ratio - rate * np.exp(log_ratio))


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    beta,
    lengths,
    vespo_k_positive=2.0,
    vespo_lambda_positive=3.0,
    vespo_k_negative=3.0,
    vespo_lambda_negative=2.0,
    **_,
):
    if lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    count = max(int(mask.sum()), 1)
    loss, gradient = 0.0, np.zeros(policy.shape)
    for i, keep in enumerate(mask):
        lp = policy[i, keep].astype(np.float64)
        log_ratio = 0.0 if old is None else np.sum(lp - old[i, keep])
        adv = float(advantages[i])
        if adv >= 0:
            weight = taper(log_ratio, vespo_k_positive, vespo_lambda_positive)
        else:
            weight = taper(log_ratio, vespo_k_negative, vespo_lambda_negative)
        loss += np.sum(-weight * adv * lp) / count
        gradient[i, keep] = -weight * adv / count
        if beta:
            d = reference[i, keep] - lp
            loss += beta * np.sum(np.exp(d) - d - 1) / count
            gradient[i, keep] += beta * (1 - np.exp(d)) / count
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
