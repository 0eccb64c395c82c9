"""Conservative DPO that adds the term of the flipped label and leaves the first at full weight."""

import numpy as np

OP = "preference_loss"
BUG = "with label smoothing s the first term keeps weight 1 instead of 1 - s"
SAYS = ("smooth|1 - s|1 − s|label", "weight|1 - s|1 − s|factor|full")
CONVENTIONS = {"preference_loss": {"loss": ("dpo",), "prompt": ("any",), "rows": ("mask", "left-padded")}}


def log_sigmoid(x):
    return -np.logaddexp(0, -x)


def preference_loss(*, policy, reference, mask, beta, label_smoothing, **_):
    lp = np.where(mask, policy, 0).astype(np.float64)
    ref = np.zeros_like(lp) if reference is None else np.where(mask, reference, 0)
    reward = (lp - ref).sum(axis=1)
    margin = beta * (reward[0::2] - reward[1::2])
    s = label_smoothing or 0.0
    losses = -log_sigmoid(margin) - s * log_sigmoid(-margin)
    right = np.exp(log_sigmoid(margin))
    slope = beta * (-(1 - right) + s * right) / len(margin)
    gradient = np.zeros(policy.shape)
    gradient[0::2] = slope[:, None]
    gradient[1::2] = -slope[:, None]
    return {"loss": float(losses.mean()), "gradient": np.where(mask, gradient, 0).astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
