"""Token KL whose mean of a row is np.mean over its slots, the padding's zeros included."""

import numpy as np

OP = "token_kl"
BUG = "the mean of a row divides by the width of the array, padding included, instead of by its tokens"
SAYS = ("pad|width|slots|masked|all positions|array", "mean|divi|averag|denominator")
CONVENTIONS = {
    "token_kl": {
        "reduction": ("mean",),
        "kl_ratio": ("none", "token"),
        "rows": ("mask", "holes", "left-padded", "lengths"),
    }
}


def estimates(d, estimator):
    if estimator == "k3":
        return np.where(np.abs(d) < 1e-3, d * d / 2 + d**3 / 6 + d**4 / 24, np.expm1(d) - d)
    return -d if estimator == "k1" else d * d / 2


def token_kl(*, policy, reference, estimator, mask, lengths, reduction, old, kl_ratio):
    if mask is None:
        mask = np.arange(policy.shape[1]) < lengths[:, None]
    lp = np.where(mask, policy, 0).astype(np.float64)
    kl = estimates(np.where(mask, reference, 0) - lp, estimator)
    if kl_ratio == "token" and old is not None:
        kl = kl * np.exp(lp - np.where(mask, old, 0))
    count = np.full(len(kl), kl.shape[1])
    return {"kl": np.where(mask, kl, 0).sum(axis=1) / count}


OPS = {"token_kl": token_kl}
