"""LUSPO whose ratio of a row is the arithmetic mean of the token ratios."""

import numpy as np

OP = "policy_loss"
BUG = "the row's ratio is the arithmetic mean of the token ratios instead of exp of the mean log-ratio"
SAYS = ("arithmetic|mean of the ratios|mean of the token|average|mean of exp|geometric", "ratio")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("luspo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k1", "k3"),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def row_terms(log_ratio, adv, low, high):
    """Value and slopes of one row, repeated on its tokens."""
    tokens = np.exp(log_ratio)
    ratio = tokens.mean()
    slopes = tokens / tokens.size
    if adv > 0 and ratio > 1 + high:
        return -(1 + high) * adv, np.zeros_like(slopes)
    if adv < 0 and ratio < 1 - low:
        return -(1 - low) * adv, np.zeros_like(slopes)
    if adv == 0:
        return 0.0, np.zeros_like(slopes)
    return -ratio * adv, -slopes * adv


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
    kl_estimator,
    lengths,
    delta=None,
    **_,
):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    loss, gradient, batch = 0.0, np.zeros(policy.shape), len(policy)
    for i, m in enumerate(mask):
        n = m.sum()
        if not n:
            continue
        lp = policy[i, m].astype(np.float64)
        value, slope = row_terms(lp - old[i, m], float(advantages[i]), epsilon_low, epsilon_high)
        loss += n * value / batch
        gradient[i, m] = n * slope / batch
        if beta:
            d = reference[i, m] - lp
            kl = -d if kl_estimator == "k1" else np.exp(d) - d - 1
            loss += beta * kl.sum() / batch
            gradient[i, m] += beta * (1 if kl_estimator == "k1" else 1 - np.exp(d)) / batch
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
