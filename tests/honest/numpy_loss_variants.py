"""GSPO with a mean over tokens, as a library that has nothing else writes it, in NumPy with gradients by hand.

gates check loss --subject tests/honest/numpy_loss_variants.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return the loss and its gradient: each token has its row's loss, all tokens weigh the same."""
    policy, mask, advantages = x["policy"], x["mask"], x["advantages"]
    dtype, low, high = policy.dtype, 1 - x["epsilon_low"], 1 + x["epsilon_high"]
    n = np.maximum(mask.sum(axis=1), 1).astype(dtype)
    difference = np.zeros_like(policy)
    np.subtract(policy, x["old"], out=difference, where=mask)
    ratio = np.exp(difference.sum(axis=1) / n)
    first, second = ratio * advantages, np.clip(ratio, low, high) * advantages
    loss, slope = -np.minimum(first, second), np.where(first <= second, -first, 0)
    if x["delta"] is not None:
        beyond = (advantages < 0) & (ratio > x["delta"])
        loss, slope = np.where(beyond, -x["delta"] * advantages, loss), np.where(beyond, 0, slope)
    if x["weights"] is not None:
        loss, slope = loss * x["weights"], slope * x["weights"]
    losses, slopes = loss[:, None] * mask, slope[:, None] * mask
    if x["beta"]:
        d = np.subtract(x["reference"], policy, out=np.zeros_like(policy), where=mask)
        losses, slopes = losses + x["beta"] * (np.expm1(d) - d), slopes - x["beta"] * np.expm1(d)
    tokens = max(mask.sum(), 1)
    return {"loss": losses.sum() / tokens, "gradient": (slopes / tokens).astype(dtype)}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("gspo",),
        "aggregation": ("token-mean",),
        "dapo_denominator": ("global",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
        "rows": ("mask", "holes"),
        "ratio": ("off-policy",),
    }
}
