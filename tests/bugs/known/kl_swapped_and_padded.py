"""k3 of policy - reference, averaged over the width of the batch."""

import numpy as np


def token_kl(policy, reference, *, mask, **_):
    log_ratio = policy - reference
    k3 = np.exp(log_ratio) - log_ratio - 1
    return {"kl": np.where(mask, k3, 0).mean(axis=1)}


OPS = {"token_kl": token_kl}
CONVENTIONS = {
    "token_kl": {
        "estimator": ("k3",),
        "reduction": ("mean",),
        "kl_ratio": ("none",),
        "kl_clamp": (None,),
        "rows": ("mask", "holes", "left-padded"),
    }
}
COMPUTES = "policy and reference exchanged"
