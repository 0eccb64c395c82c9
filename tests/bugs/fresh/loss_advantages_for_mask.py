"""PPO whose token mean gets the advantages in the place of the response mask."""

import numpy as np

OP = "policy_loss"
BUG = "the advantages are passed as the mask of the token mean, so that they weigh the tokens and their sum divides"
SAYS = ("advantage", "mask|weigh|twice|again|squar|sum|denominator|divi")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("ppo",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def masked_mean_weights(mask):
    """Give the weight of each token in sum(loss * mask) / sum(mask)."""
    return mask / mask.sum()


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages.reshape(len(policy), -1), 0).astype(np.float64)
    ratio = np.ones(lp.shape) if old is None else np.exp(lp - np.where(mask, old, 0))
    plain = -adv * ratio
    losses = np.maximum(plain, -adv * np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high))
    slopes = np.where(losses == plain, plain, 0)
    if delta is not None:
        beyond = (adv < 0) & (losses > -adv * delta)
        losses, slopes = np.where(beyond, -adv * delta, losses), np.where(beyond, 0, slopes)
    response_mask = adv
    weight = masked_mean_weights(response_mask)
    loss, gradient = (weight * losses).sum(), weight * slopes
    if beta:
        d = np.where(mask, reference, 0) - lp
        share = masked_mean_weights(mask)
        loss += beta * (share * (np.exp(d) - d - 1)).sum()
        gradient = gradient + beta * share * (1 - np.exp(d))
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
