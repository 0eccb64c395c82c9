"""GSPO whose mean log-ratio of a row is numpy's mean over all slots, the zeros of the padding included."""

import numpy as np

OP = "policy_loss"
BUG = "the row's mean log-ratio divides by the padded width instead of by the row's tokens"
SAYS = ("width|pad|longest|slots|array", "ratio|mean|divi")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    b = policy.shape[0]
    mask = np.ones(policy.shape, bool) if mask is None else mask
    n = np.maximum(mask.sum(axis=1), 1)
    slots = np.full(b, policy.shape[1])
    lp = np.where(mask, policy, 0).astype(np.float64)
    log_ratio = np.where(mask, lp - np.where(mask, old, 0), 0)
    s = np.exp(log_ratio.sum(axis=1) / slots)

    a = advantages.astype(np.float64)
    s = np.where(a == 0, 1, s)
    plain, clipped = s * a, np.clip(s, 1 - epsilon_low, 1 + epsilon_high) * a
    row_loss = np.where(mask.any(axis=1), -np.minimum(plain, clipped), 0)
    row_slope = np.where(plain <= clipped, -plain, 0) / slots
    gradient = np.repeat(row_slope[:, None], policy.shape[1], axis=1) / b
    loss = row_loss.mean()
    if beta:
        d = np.where(mask, np.where(mask, reference, 0) - lp, 0)
        loss += beta * ((np.exp(d) - d - 1).sum(axis=1) / n).mean()
        gradient += beta * (1 - np.exp(d)) / n[:, None] / b
    return {"loss": float(loss), "gradient": np.where(mask, gradient, 0).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
