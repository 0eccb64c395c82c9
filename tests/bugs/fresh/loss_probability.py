"""REINFORCE that multiplies the advantage by the probability of the token and not by its logarithm."""

import numpy as np

OP = "policy_loss"
BUG = "the probability of a token stands where its log-probability belongs"
SAYS = ("probability of|probabilities|exp(lp)|exp of|exponential|not its log|not the log",)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce",),
        "rows": ("mask", "holes", "lengths", "all", "row-mask"),
        "kl_estimator": ("k1", "k3"),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def score(lp):
    return np.exp(lp), np.exp(lp)


def policy_loss(*, policy, mask, reference, advantages, beta, kl_estimator, lengths, row_mask=None, **_):
    if mask is None:
        stop = policy.shape[1] if lengths is None else lengths[:, None]
        mask = np.broadcast_to(np.arange(policy.shape[1]) < stop, policy.shape)
    if row_mask is not None:
        mask = mask & row_mask[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages[:, None] if advantages.ndim == 1 else advantages, 0)
    value, derivative = score(lp)
    loss, slope = -adv * value, -adv * derivative
    if beta > 0:
        d = np.where(mask, reference, 0) - lp
        kl, kl_slope = (-d, 1.0) if kl_estimator == "k1" else (np.exp(d) - d - 1, 1 - np.exp(d))
        loss, slope = loss + beta * kl, slope + beta * kl_slope
    share = mask / (len(policy) * np.maximum(mask.sum(axis=1, keepdims=True), 1))
    return {"loss": float((loss * share).sum()), "gradient": (slope * share).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
