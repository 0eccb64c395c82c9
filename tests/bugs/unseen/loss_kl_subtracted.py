"""GRPO that writes the objective's minus sign of the KL into the loss, which is minimised."""

import numpy as np

OP = "policy_loss"
BUG = "the KL is subtracted from the loss instead of added: its sign is wrong"
SAYS = ("kl", "sign|subtract|minus|negat")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "holes", "row-mask", "all"),
        "kl_estimator": ("k1", "k2", "k3"),
        "kl_ratio": ("none",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def kl_and_slope(d, estimator):
    if estimator == "k1":
        return -d, np.ones_like(d)
    if estimator == "k2":
        return d * d / 2, -d
    return np.expm1(d) - d, -np.expm1(d)


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
    row_mask=None,
    delta=None,
    **_,
):
    if lengths is not None:
        raise NotImplementedError("masks only")
    mask = np.ones(policy.shape, bool) if mask is None else mask.copy()
    if row_mask is not None:
        mask &= row_mask[:, None]
    lp = np.where(mask, policy, -1.0).astype(np.float64)
    behaviour = lp if old is None else np.where(mask, old, -1.0)
    a = advantages.astype(np.float64)[:, None]
    ratio = np.where(a == 0, 1, np.exp(lp - behaviour))
    bounded = ratio if delta is None else np.minimum(ratio, delta)
    first, second = bounded * a, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * a
    loss = -np.minimum(first, second)
    slope = np.where((first <= second) & (bounded == ratio), -ratio * a, 0)
    if beta > 0:
        kl, kl_slope = kl_and_slope(np.where(mask, reference, -1.0) - lp, kl_estimator)
        loss = loss - beta * kl
        slope = slope - beta * kl_slope
    counts = np.maximum(mask.sum(1), 1)
    total = (np.where(mask, loss, 0).sum(1) / counts).mean()
    gradient = np.where(mask, slope, 0) / counts[:, None] / len(policy)
    return {"loss": float(total), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
