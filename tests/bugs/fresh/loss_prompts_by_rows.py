"""DAPO with a token mean for each prompt whose mean over prompts divides by the rows of the batch."""

import numpy as np

OP = "policy_loss"
BUG = "the sum of the prompts' token means is divided by the number of rows instead of that of prompts"
SAYS = ("prompt|group", "row|divi|number|count|size|averag|mean|completion")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "dapo_denominator": ("group",),
        "kl_estimator": ("k3",),
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
    lengths,
    group_size,
    delta=None,
    **_,
):
    if delta is not None:
        raise NotImplementedError
    rows, width = policy.shape
    if mask is None:
        mask = np.ones((rows, width), bool) if lengths is None else np.arange(width) < lengths[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    ratio = np.exp(lp - np.where(mask, lp if old is None else old, 0))
    adv = np.where(mask, np.broadcast_to(advantages.reshape(rows, -1), mask.shape), 0).astype(np.float64)
    plain, clipped = ratio * adv, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * adv
    value, slope = -np.minimum(plain, clipped), np.where(plain <= clipped, -plain, 0)
    if beta:
        d = np.where(mask, reference, 0) - lp
        value, slope = value + beta * (np.exp(d) - d - 1), slope + beta * (1 - np.exp(d))
    tokens = mask.reshape(-1, group_size * width).sum(axis=1)
    share = np.repeat(1 / np.maximum(tokens, 1), group_size)[:, None] * mask / rows
    return {"loss": float((share * value).sum()), "gradient": (share * slope).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
