"""RLOO with the score-function gradient of on-policy samples under an off-policy loss: no ratio in the gradient."""

import numpy as np

OP = "policy_loss"
BUG = "the gradient lacks the ratio, as if the sequence ratio were detached and 1; the loss has it"
SAYS = ("gradient|slope|backward", "ratio")
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("rloo",),
        "rows": ("mask", "holes", "lengths", "all"),
        "advantages": ("row",),
        "weights": (True, False),
        "clipped": (False,),
    }
}


def policy_loss(*, policy, mask, old, advantages, lengths, weights=None, epsilon_low=None, **_):
    if epsilon_low is not None:
        raise NotImplementedError("no clip")
    if mask is None:
        last = policy.shape[1] if lengths is None else np.asarray(lengths)[:, None]
        mask = np.broadcast_to(np.arange(policy.shape[1])[None] < last, policy.shape)
    scale = advantages.astype(np.float64)
    if weights is not None:
        scale = scale * weights
    log_ratio = np.zeros(policy.shape)
    if old is not None:
        log_ratio = np.where(mask, policy.astype(np.float64) - old, 0.0)
    ratio = np.exp(log_ratio.sum(axis=1))
    rows = np.where(scale == 0, 0, -ratio * scale)
    rows = np.where(mask.any(axis=1), rows, 0)
    slope = -scale
    gradient = np.where(mask, slope[:, None], 0) / len(policy)
    return {"loss": float(rows.mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
