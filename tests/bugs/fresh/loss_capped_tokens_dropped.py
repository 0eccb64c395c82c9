"""CISPO that masks the tokens above the cap out, as PPO's clip would, where it should keep them at the cap."""

import numpy as np

OP = "policy_loss"
BUG = "tokens whose ratio is above the cap are dropped: they have no loss and no gradient instead of the capped weight"
SAYS = ("cap|clip|above|bound", "drop|mask|gradient|zero|lost|lose|remov")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "dapo_denominator": ("global", "trl"),
        "cispo_bound": ("relative", "absolute"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
        "ratio": ("off-policy",),
    }
}


def capped(ratio, cap):
    return np.where(ratio <= cap, ratio, 0)


def policy_loss(
    *,
    policy,
    mask,
    old,
    reference,
    advantages,
    epsilon_high,
    beta,
    lengths,
    cispo_bound,
    dapo_denominator,
    tokens_in_step,
    **_,
):
    if mask is None and lengths is None:
        mask = np.ones(policy.shape, bool)
    elif mask is None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages if advantages.ndim == 2 else advantages[:, None], 0)
    cap = epsilon_high if cispo_bound == "absolute" else 1 + epsilon_high
    weight = capped(np.exp(lp - np.where(mask, old, 0)), cap)
    slope = -weight * adv
    value = slope * lp
    if beta:
        d = np.where(mask, reference, 0) - lp
        value, slope = value + beta * (np.exp(d) - d - 1), slope + beta * (1 - np.exp(d))
    count = tokens_in_step if dapo_denominator == "trl" else max(mask.sum(), 1)
    gradient = np.where(mask, slope, 0) / count
    return {"loss": float(value[mask].sum() / count), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
