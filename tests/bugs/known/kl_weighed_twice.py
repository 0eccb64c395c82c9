"""The textbook sum over p (log p - log q), on tokens that were sampled from p already."""

import numpy as np


def token_kl(policy, reference, *, mask, **_):
    terms = np.exp(policy) * (policy - reference)
    return {"kl": (terms * mask).sum(axis=1)}


OPS = {"token_kl": token_kl}
CONVENTIONS = {
    "token_kl": {
        "estimator": ("k1",),
        "reduction": ("sum",),
        "kl_ratio": ("none",),
        "kl_clamp": (None,),
        "rows": ("mask", "holes", "left-padded"),
    }
}
COMPUTES = "weighed by its probability again"
