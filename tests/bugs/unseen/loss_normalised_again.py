"""REINFORCE++ whose loss whitens the advantages that the caller whitened already, now over the tokens at hand."""

import numpy as np

OP = "policy_loss"
BUG = "the loss normalises the given advantages again, to mean 0 and deviation 1 over its tokens"
SAYS = ("advantage", "normali|whiten|standardi|mean|centr|deviation|std")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce++",),
        "rows": ("mask", "holes", "lengths", "all"),
        "dapo_denominator": ("global",),
        "weights": (False,),
    }
}


def whiten(values):
    return (values - values.mean()) / (values.std() + 1e-8)


def policy_loss(*, policy, mask, old, advantages, epsilon_low, epsilon_high, lengths, delta=None, **_):
    if delta is not None:
        raise NotImplementedError
    if mask is None:
        mask = np.ones(policy.shape, bool)
        if lengths is not None:
            mask = np.arange(policy.shape[1]) < lengths[:, None]
    gradient = np.zeros(policy.shape)
    if not mask.any():
        return {"loss": 0.0, "gradient": gradient.astype(policy.dtype)}
    lp = policy[mask].astype(np.float64)
    ratio = np.exp(lp - old[mask]) if old is not None else np.ones(len(lp))
    given = np.broadcast_to(advantages[:, None], mask.shape) if advantages.ndim == 1 else advantages
    adv = whiten(given[mask].astype(np.float64))
    losses = np.maximum(-adv * ratio, -adv * np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high))
    alive = losses == -adv * ratio
    gradient[mask] = np.where(alive, -adv * ratio, 0) / len(lp)
    return {"loss": float(losses.mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
