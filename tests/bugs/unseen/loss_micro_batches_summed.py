"""BNPO whose accumulated micro-batches are added up and never divided by how many they are."""

import numpy as np

OP = "policy_loss"
BUG = "the losses of the micro-batches are summed instead of averaged: the division by their number is missing"
SAYS = ("micro|part|accumul", "sum|number|divi|averag|mean|times")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("bnpo-trl",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def micro_batch(lp, old, reference, adv, mask, low, high, beta):
    count = max(mask.sum(), 1)
    ratio = np.exp(lp - old)
    plain = np.where(adv == 0, 0, ratio * adv)
    clipped = np.clip(ratio, 1 - low, 1 + high) * adv
    value = -np.minimum(plain, clipped)
    slope = np.where(plain <= clipped, -plain, 0)
    if beta:
        d = reference - lp
        value = value + beta * (np.exp(d) - d - 1)
        slope = slope + beta * (1 - np.exp(d))
    return np.where(mask, value, 0).sum() / count, np.where(mask, slope, 0) / count


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
    micro_batches,
    lengths,
    delta=None,
    **_,
):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    lp = np.where(mask, policy, 0).astype(np.float64)
    old = lp if old is None else np.where(mask, old, 0)
    reference = lp if reference is None else np.where(mask, reference, 0)
    adv = np.where(mask, advantages if advantages.ndim == 2 else advantages[:, None], 0).astype(np.float64)
    loss, gradients, start = 0.0, [], 0
    for rows in micro_batches:
        part = slice(start, start + rows)
        value, gradient = micro_batch(
            lp[part], old[part], reference[part], adv[part], mask[part], epsilon_low, epsilon_high, beta
        )
        loss += value
        gradients.append(gradient)
        start += rows
    return {"loss": float(loss), "gradient": np.concatenate(gradients).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
