"""Dr. GRPO that divides the sum of all tokens by the longest completion allowed, and not by the rows."""

import numpy as np

OP = "policy_loss"
BUG = "the sum over the batch is divided by max_length only: the division by the number of rows is missing"
SAYS = ("row|batch", "divi|sum|averag|mean|number|times|factor|normali")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dr_grpo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "kl_estimator": ("k2", "k3"),
        "kl_ratio": ("none",),
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
    max_length,
    lengths,
    delta=None,
    **_,
):
    if delta is not None:
        raise NotImplementedError
    if mask is None and lengths is not None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    elif mask is None:
        mask = np.ones(policy.shape, bool)
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages.reshape(len(lp), -1), 0).astype(np.float64)
    ratio = np.exp(lp - (lp if old is None else np.where(mask, old, 0)))
    upper, lower = ratio > 1 + epsilon_high, ratio < 1 - epsilon_low
    dead = (upper & (adv > 0)) | (lower & (adv < 0)) | (adv == 0)
    held = np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    tokens = -adv * np.where(dead, held, ratio)
    grads = np.where(dead, 0, -adv * np.where(dead, 0, ratio))
    if beta != 0:
        d = np.where(mask, reference, 0) - lp
        tokens += beta * (d**2 / 2 if kl_estimator == "k2" else np.exp(d) - d - 1)
        grads += beta * (-d if kl_estimator == "k2" else 1 - np.exp(d))
    loss = np.sum(tokens * mask) / max_length
    return {"loss": float(loss), "gradient": (grads * mask / max_length).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
