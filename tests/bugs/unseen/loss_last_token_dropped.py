"""REINFORCE whose mask ends before the end-of-sequence token: the last token of each completion is not trained."""

import numpy as np

OP = "policy_loss"
BUG = "the last token of each row, its end-of-sequence token, is dropped from the mask"
SAYS = ("last|eos|end-of|end of|final", "token|mask|drop|slot")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("reinforce",),
        "rows": ("mask", "holes", "lengths", "all"),
        "kl_estimator": ("k1", "k3"),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def trained_slots(policy, mask, lengths):
    if mask is None:
        n = policy.shape[1] if lengths is None else np.asarray(lengths)[:, None]
        mask = np.broadcast_to(np.arange(policy.shape[1]) < n, policy.shape)
    slots = [np.flatnonzero(row) for row in mask]
    return [row[:-1] for row in slots]


def policy_loss(*, policy, mask, reference, advantages, beta, kl_estimator, lengths, **_):
    loss, gradient = 0.0, np.zeros(policy.shape)
    for i, at in enumerate(trained_slots(policy, mask, lengths)):
        if not len(at):
            continue
        lp = policy[i, at].astype(np.float64)
        adv = np.float64(advantages[i]) if advantages.ndim == 1 else advantages[i, at].astype(np.float64)
        value = -adv * lp
        slope = -adv * np.ones(len(at))
        if beta:
            d = reference[i, at] - lp
            value = value + beta * (-d if kl_estimator == "k1" else np.expm1(d) - d)
            slope = slope + beta * (1.0 if kl_estimator == "k1" else -np.expm1(d))
        loss += value.mean() / len(policy)
        gradient[i, at] = slope / len(at) / len(policy)
    return {"loss": float(loss), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
