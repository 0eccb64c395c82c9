"""GRPO with off-policy weights that multiply the whole loss of a token, the KL included."""

import numpy as np

OP = "policy_loss"
BUG = "the off-policy weights multiply the KL too and not the surrogate alone"
SAYS = ("kl", "weight")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k1", "k2", "k3"),
        "kl_ratio": ("none",),
    }
}

ESTIMATORS = {
    "k1": (lambda d: -d, np.ones_like),
    "k2": (lambda d: d * d / 2, lambda d: -d),
    "k3": (lambda d: np.exp(d) - d - 1, lambda d: 1 - np.exp(d)),
}


def per_token(x, shape):
    return np.broadcast_to(x[:, None] if x.ndim == 1 else x, shape).astype(np.float64)


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
    weights=None,
    delta=None,
    **_,
):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    shape = policy.shape
    mask = np.ones(shape, bool) if mask is None else mask
    lp = np.where(mask, policy, 0).astype(np.float64)
    log_ratio = np.zeros(shape) if old is None else lp - np.where(mask, old, 0)
    ratio, adv = np.exp(log_ratio), np.where(mask, per_token(advantages, shape), 0)
    plain = -adv * ratio
    clipped = -adv * np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    loss, slope = np.maximum(plain, clipped), np.where(plain >= clipped, plain, 0)
    if beta:
        value, derivative = ESTIMATORS[kl_estimator]
        d = np.where(mask, reference, 0) - lp
        loss, slope = loss + beta * value(d), slope + beta * derivative(d)
    if weights is not None:
        w = np.where(mask, per_token(weights, shape), 0)
        loss, slope = w * loss, w * slope
    share = mask / np.maximum(mask.sum(1), 1)[:, None] / shape[0]
    return {"loss": float((share * loss).sum()), "gradient": (share * slope).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
