"""GRPO that asks whether beta is on, adds the KL to the loss and forgets to multiply it."""

import numpy as np

OP = "policy_loss"
BUG = "the KL is added without its weight beta"
SAYS = ("kl|beta|β", "beta|β|weight|coefficient|factor")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
        "advantages": ("row",),
    }
}


def token_loss(lp, old, ref, adv, settings):
    """Loss and slope of the tokens of one completion."""
    low, high, beta = settings
    ratio = np.exp(lp - old)
    held = np.clip(ratio, 1 - low, 1 + high)
    use_plain = ratio * adv <= held * adv
    loss = -np.where(use_plain, ratio * adv, held * adv)
    slope = np.where(use_plain, -ratio * adv, 0)
    if beta > 0:
        d = ref - lp
        loss = loss + (np.exp(d) - d - 1)
        slope = slope + (1 - np.exp(d))
    return loss, slope


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    total, gradient = 0.0, np.zeros(policy.shape)
    for i in range(len(policy)):
        at = slice(None) if mask is None else mask[i]
        lp = policy[i, at].astype(np.float64)
        if lp.size == 0:
            continue
        behaviour = lp if old is None else old[i, at]
        anchor = None if reference is None else reference[i, at]
        settings = (epsilon_low, epsilon_high, beta)
        loss, slope = token_loss(lp, behaviour, anchor, np.float64(advantages[i]), settings)
        total += loss.mean()
        gradient[i, at] = slope / lp.size
    return {"loss": float(total / len(policy)), "gradient": (gradient / len(policy)).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
