"""GSPO-token whose backward pass is that of the row's mean: each token's slope is divided by the length once more."""

import numpy as np

OP = "policy_loss"
BUG = "the gradient of a token is divided by the row's length a second time; the loss itself is right"
SAYS = ("gradient|slope|backward", "length|tokens|twice|second|divi")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo-token",),
        "rows": ("mask", "holes", "all"),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_low, epsilon_high, beta, lengths, delta=None, **_):
    if delta is not None or lengths is not None:
        raise NotImplementedError
    if mask is None:
        mask = np.ones(policy.shape, bool)
    batch, gradient, loss = len(policy), np.zeros(policy.shape), 0.0
    for i in range(batch):
        at = np.flatnonzero(mask[i])
        n = len(at)
        if n == 0:
            continue
        lp = policy[i, at].astype(np.float64)
        ratio = 1.0 if old is None else np.exp(np.mean(lp - old[i, at]))
        a = np.broadcast_to(advantages[i] if advantages.ndim == 1 else advantages[i, at], n).astype(np.float64)
        clipped = min(max(ratio, 1 - epsilon_low), 1 + epsilon_high)
        objective = np.minimum(ratio * a, clipped * a)
        alive = ratio * a <= clipped * a
        slope = np.where(alive, ratio * a, 0) / n
        loss -= objective.mean() / batch
        gradient[i, at] = -slope / n / batch
        if beta:
            d = reference[i, at] - lp
            loss += beta * np.mean(np.exp(d) - d - 1) / batch
            gradient[i, at] += beta * (1 - np.exp(d)) / n / batch
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
