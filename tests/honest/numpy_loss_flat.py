"""Losses over flat rows, one after the other with their lengths, by np.add.reduceat and np.repeat; gradients by hand.

gates check loss --subject tests/honest/numpy_loss_flat.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def sums(values: Any, lengths: Any) -> Any:
    """Return the sum of each row; reduceat gives the next row's first value where a row is empty."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    padded = np.append(values, values.dtype.type(0))
    return np.where(lengths > 0, np.add.reduceat(padded, starts), 0).astype(values.dtype)


def policy_loss(
    *,
    policy: Any,
    lengths: Any,
    old: Any = None,
    reference: Any = None,
    advantages: Any,
    algorithm: str,
    epsilon_low: float,
    epsilon_high: float,
    beta: float = 0.0,
    max_length: Any = None,
) -> dict[str, Any]:
    """Return the loss of tokens that are packed without padding."""
    kind, rows = policy.dtype.type, len(lengths)
    a = np.repeat(advantages, lengths) if len(advantages) == rows else advantages
    ratio = np.exp(policy - (policy if old is None else old))
    low, high = kind(1 - epsilon_low), kind(1 + epsilon_high)
    bounded = np.where(a >= 0, np.minimum(ratio, high), np.maximum(ratio, low))
    value = -bounded * a
    slope = np.where(bounded == ratio, value, 0)
    if beta:
        d = reference - policy
        value = value + kind(beta) * (np.exp(d) - 1 - d)
        slope = slope + kind(beta) * (1 - np.exp(d))
    if algorithm == "grpo":
        share = np.repeat(1 / (np.maximum(lengths, 1) * rows), lengths)
    elif algorithm == "dapo":
        share = np.full(len(policy), 1 / len(policy))
    else:
        share = np.full(len(policy), 1 / (rows * max_length))
    share = share.astype(policy.dtype)
    return {"loss": sums(value * share, lengths).sum(), "gradient": slope * share}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dapo", "dr_grpo"),
        "rows": ("flat",),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}
