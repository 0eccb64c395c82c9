"""DAPO with a KL to the reference whose k3 takes policy - reference, as in the ratio above it."""

import numpy as np

OP = "policy_loss"
BUG = "policy and reference are exchanged in the k3 estimate of the KL"
SAYS = ("kl|k3", "exchang|swap|revers|argument|policy - ref|policy − ref|order|direction|sign of d")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "rows": ("mask", "all", "flat"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
        "advantages": ("row",),
    }
}


def flatten(policy, mask, lengths):
    """Give the row of each token that counts, and where it lies."""
    if policy.ndim == 1:
        return np.repeat(np.arange(len(lengths)), lengths), np.arange(len(policy))
    keep = np.ones(policy.shape, bool) if mask is None else mask
    return np.nonzero(keep)[0], np.flatnonzero(keep)


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None or (lengths is not None and policy.ndim == 2):
        raise NotImplementedError
    rows, where = flatten(policy, mask, lengths)
    lp = policy.reshape(-1)[where].astype(np.float64)
    adv = advantages[rows].astype(np.float64)
    log_ratio = 0 * lp if old is None else lp - old.reshape(-1)[where]
    ratio = np.exp(np.where(adv == 0, 0, log_ratio))
    stopped = ((adv > 0) & (ratio > 1 + epsilon_high)) | ((adv < 0) & (ratio < 1 - epsilon_low))
    value = -np.where(stopped, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high), ratio) * adv
    slope = np.where(stopped, 0, -ratio * adv)
    if beta:
        d = lp - reference.reshape(-1)[where]
        value += beta * (np.exp(d) - d - 1)
        slope += beta * (np.exp(d) - 1)
    count = max(len(where), 1)
    gradient = np.zeros(policy.size)
    gradient[where] = slope / count
    return {"loss": float(value.sum() / count), "gradient": gradient.reshape(policy.shape).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
