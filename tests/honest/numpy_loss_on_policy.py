"""GRPO and DAPO on policy, without old log-probs and without a clip, in NumPy with gradients by hand, row by row.

gates check loss --subject tests/honest/numpy_loss_on_policy.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def share_of_a_token(algorithm: str, tokens: int, all_tokens: int, rows: int) -> float:
    """Return what a token counts in the mean of rows, or in the mean of all tokens."""
    return 1.0 / (tokens * rows) if algorithm == "grpo" else 1.0 / all_tokens


def policy_loss(
    *, policy: Any, advantages: Any, algorithm: str, mask: Any = None, reference: Any = None, beta: float = 0.0
) -> dict[str, Any]:
    """−A for each token, whose slope is −A too, and β times k3."""
    rows, width = policy.shape
    keep = np.ones((rows, width), bool) if mask is None else mask
    loss, gradient = 0.0, np.zeros_like(policy)
    for b in range(rows):
        for t in range(width):
            if not keep[b, t]:
                continue
            share = share_of_a_token(algorithm, keep[b].sum(), keep.sum(), rows)
            advantage = advantages[b] if advantages.ndim == 1 else advantages[b, t]
            value = slope = -advantage
            if beta:
                d = reference[b, t] - policy[b, t]
                value = value + beta * (np.expm1(d) - d)
                slope = slope - beta * np.expm1(d)
            loss += share * value
            gradient[b, t] = share * slope
    return {"loss": loss, "gradient": gradient}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("grpo", "dapo"),
        "ratio": ("on-policy",),
        "dapo_denominator": ("global",),
        "kl_estimator": ("k3",),
        "kl_ratio": ("none",),
    }
}
