"""CISPO without the stop-gradient: the capped ratio in front of the log-prob is differentiated too."""

import numpy as np

OP = "policy_loss"
BUG = "the capped ratio is not detached: the gradient flows through it too"
SAYS = ("detach|stop|flows|through|differentiat|constant", "ratio|weight|cap|coefficient")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "rows": ("mask", "holes", "all"),
        "dapo_denominator": ("global",),
        "cispo_bound": ("relative",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
        "weights": (False,),
    }
}


def policy_loss(*, policy, mask, old, reference, advantages, epsilon_high, beta, lengths, **_):
    if lengths is not None:
        raise NotImplementedError
    mask = np.ones(policy.shape, bool) if mask is None else mask
    lp = np.where(mask, policy, 0).astype(np.float64)
    adv = np.where(mask, advantages[:, None] if advantages.ndim == 1 else advantages, 0)
    ratio = np.exp(lp - np.where(mask, old, 0)) if old is not None else np.ones(lp.shape)
    cap = 1 + epsilon_high
    coefficient = np.minimum(ratio, cap)
    tokens = -coefficient * adv * lp
    slope = -coefficient * adv
    slope = slope + np.where(ratio <= cap, tokens, 0)
    if beta:
        d = np.where(mask, reference, 0) - lp
        tokens = tokens + beta * (np.exp(d) - d - 1)
        slope = slope + beta * (1 - np.exp(d))
    count = max(mask.sum(), 1)
    loss = tokens[mask].sum() / count
    return {"loss": float(loss), "gradient": np.where(mask, slope / count, 0).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
