"""GSPO whose KL is computed without gradients, beside the reference's forward pass: it is logged and never trained."""

import numpy as np

OP = "policy_loss"
BUG = "the KL is detached: it is in the loss and has no gradient"
SAYS = ("kl", "detach|gradient|constant|stop")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k2", "k3"),
        "kl_ratio": ("none",),
        "advantages": ("row",),
        "weights": (False,),
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
    loss, gradient = 0.0, np.zeros(policy.shape)
    for i in range(batch):
        keep = np.ones(policy.shape[1], bool) if mask is None else mask[i]
        n = keep.sum()
        if n == 0:
            continue
        lp, adv = policy[i, keep].astype(np.float64), float(advantages[i])
        ratio = 1.0 if old is None else np.exp((lp - old[i, keep]).sum() / n)
        kl, kl_slope = 0.0, np.zeros(n)
        if beta:
            d = reference[i, keep] - lp
            kl = np.mean(d**2 / 2) if kl_estimator == "k2" else np.mean(np.exp(d) - d - 1)
        upper = adv > 0 and ratio > 1 + epsilon_high
        lower = adv < 0 and ratio < 1 - epsilon_low
        bounded = 1 + epsilon_high if upper else 1 - epsilon_low if lower else ratio
        loss += -bounded * adv + beta * kl
        gradient[i, keep] = ((0 if upper or lower else -ratio * adv) + beta * kl_slope) / n
    return {"loss": float(loss / batch), "gradient": (gradient / batch).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
