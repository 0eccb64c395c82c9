"""GRPO whose sign was turned before the comparison and not the comparison with it: the larger objective of the two wins."""

import numpy as np

OP = "policy_loss"
BUG = "the clip takes the maximum of the two surrogates instead of the minimum, so it is optimistic"
SAYS = ("max|larger|optimistic|instead of the min|not the min",)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "holes", "all", "lengths"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None:
        raise NotImplementedError("no second bound")
    rows, width = policy.shape
    if mask is None:
        mask = np.ones((rows, width), bool) if lengths is None else np.arange(width) < lengths[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    log_ratio = np.zeros_like(lp) if old is None else lp - np.where(mask, old, 0)
    ratio = np.exp(log_ratio)
    adv = np.broadcast_to(advantages[:, None] if advantages.ndim == 1 else advantages, lp.shape)
    adv = np.where(mask, adv, 0).astype(np.float64)

    plain = np.where(adv == 0, 0, -adv * ratio)
    clipped = -adv * np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    per_token = np.minimum(plain, clipped)
    slope = np.where(plain <= clipped, plain, 0)
    if beta:
        gap = np.where(mask, reference, 0) - lp
        per_token = per_token + beta * (np.expm1(gap) - gap)
        slope = slope - beta * np.expm1(gap)

    share = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1) / rows
    return {"loss": float((share * per_token).sum()), "gradient": (share * slope).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
