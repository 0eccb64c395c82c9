"""Token KL whose k2 is the square of the difference and not half of it."""

import numpy as np

OP = "token_kl"
BUG = "k2 lacks its factor one half: it is the square of the difference"
SAYS = ("half|halv|1/2|/2|twice|double|two",)
CONVENTIONS = {
    "token_kl": {
        "estimator": ("k2",),
        "kl_ratio": ("none",),
        "rows": ("mask", "holes", "left-padded", "lengths", "all"),
    }
}


def token_kl(*, policy, reference, estimator, mask, lengths, reduction, old, kl_ratio):
    if mask is None:
        mask = np.ones(policy.shape, bool)
        if lengths is not None:
            mask = np.arange(policy.shape[1])[None, :] < lengths[:, None]
    d = np.where(mask, reference, 0).astype(np.float64) - np.where(mask, policy, 0)
    kl = d**2
    if reduction == "sum":
        kl = kl.sum(axis=1)
    elif reduction == "mean":
        kl = kl.sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
