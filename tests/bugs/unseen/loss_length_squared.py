"""LUSPO that multiplies by the length after the sum over tokens, which already holds it."""

import numpy as np

OP = "policy_loss"
BUG = "a row's surrogate is multiplied by its length twice: it counts with the square of its tokens"
SAYS = ("length|tokens", "twice|squar|again|multipl|double|times|factor|second")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("luspo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "advantages": ("row",),
        "weights": (False,),
    }
}


def to_mask(policy, mask, lengths):
    if mask is None and lengths is None:
        return np.ones(policy.shape, bool)
    return mask if mask is not None else np.arange(policy.shape[1])[None, :] < lengths[:, None]


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None:
        raise NotImplementedError
    mask = to_mask(policy, mask, lengths)
    counts = mask.sum(axis=1).astype(np.float64)
    safe = np.where(counts > 0, counts, 1)
    lp = np.where(mask, policy, 0).astype(np.float64)
    ratio = np.exp((lp - np.where(mask, old, 0)).sum(axis=1) / safe)
    adv = advantages.astype(np.float64)
    ratio = np.where(adv == 0, 1, ratio)
    unclipped, clipped = -adv * ratio, -adv * np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high)
    per_row = np.maximum(unclipped, clipped)
    active = unclipped >= clipped

    per_token = np.where(mask, per_row[:, None], 0)
    loss = (counts * per_token.sum(axis=1)).mean()
    gradient = np.where(mask, (counts * np.where(active, unclipped, 0))[:, None], 0) / len(policy)
    if beta:
        d = np.where(mask, np.where(mask, reference, 0) - lp, 0)
        loss += beta * (np.exp(d) - d - 1).sum(axis=1).mean()
        gradient += np.where(mask, beta * (1 - np.exp(d)), 0) / len(policy)
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
