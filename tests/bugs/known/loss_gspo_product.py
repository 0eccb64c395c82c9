"""GSPO with the ratio of whole sequences: the sum of log-ratios is not divided by the length."""

from __future__ import annotations

from typing import Any

import numpy as np


def policy_loss(
    *,
    policy: Any,
    old: Any,
    advantages: Any,
    mask: Any,
    algorithm: Any,
    epsilon_low: Any,
    epsilon_high: Any,
    delta: Any = None,
    beta: Any,
    **_: Any,
) -> dict[str, Any]:
    if algorithm != "gspo" or beta or delta is not None:
        raise NotImplementedError
    ratio = np.exp(((policy - old) * mask).sum(axis=1))
    surrogate = ratio * advantages
    bounded = np.clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantages
    loss = -np.minimum(surrogate, bounded)
    has_tokens = mask.any(axis=1)
    slope = np.where((surrogate <= bounded) & has_tokens, -surrogate, 0) / len(policy)
    loss = np.where(has_tokens, loss, 0)
    return {"loss": float(loss.mean()), "gradient": (slope[:, None] * mask).astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
        "advantages": ("row",),
        "kl_ratio": ("none",),
        "ratio": ("off-policy",),
        "rows": ("mask",),
        "weights": (False,),
    }
}
COMPUTES = "exp(Σ D)"
