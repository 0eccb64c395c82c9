"""GRPO that passes the reference model's log-probs to the ratio wherever a reference was computed."""

import numpy as np

OP = "policy_loss"
BUG = "the importance ratio divides by the reference policy instead of the old policy"
SAYS = ("reference|ref", "ratio|old")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "all"),
        "kl_estimator": ("k1", "k3"),
        "kl_ratio": ("none",),
        "weights": (False,),
        "ratio": ("off-policy",),
        "advantages": ("row",),
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
    kl_estimator,
    lengths,
    delta=None,
    **_,
):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    batch = len(policy)
    mask = np.ones(policy.shape, bool) if mask is None else mask
    gradient = np.zeros(policy.shape)
    loss = 0.0
    anchor = reference if reference is not None else old
    for i in range(batch):
        m = mask[i]
        n = m.sum()
        if n == 0:
            continue
        lp = policy[i, m].astype(np.float64)
        ratio = np.exp(lp - anchor[i, m])
        a = float(advantages[i])
        if a > 0:
            objective = np.minimum(ratio, 1 + epsilon_high) * a
            slope = np.where(ratio <= 1 + epsilon_high, ratio * a, 0)
        elif a < 0:
            objective = np.maximum(ratio, 1 - epsilon_low) * a
            slope = np.where(ratio >= 1 - epsilon_low, ratio * a, 0)
        else:
            objective, slope = np.zeros(n), np.zeros(n)
        if beta > 0:
            d = reference[i, m] - lp
            kl, kl_slope = (-d, np.ones(n)) if kl_estimator == "k1" else (np.exp(d) - d - 1, 1 - np.exp(d))
            objective = objective - beta * kl
            slope = slope - beta * kl_slope
        loss -= objective.sum() / n / batch
        gradient[i, m] = -slope / n / batch
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
