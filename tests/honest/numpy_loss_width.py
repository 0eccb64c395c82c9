"""Dr. GRPO over the padded width of the batch, with one clip width, in NumPy with gradients by hand, row by row.

gates check loss --subject tests/honest/numpy_loss_width.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def policy_loss(**x: Any) -> dict[str, Any]:
    """Return the loss and its gradient."""
    if x["weights"] is not None or x["delta"] is not None:
        raise NotImplementedError("no off-policy weights, and no second bound")
    policy, epsilon = x["policy"], x["epsilon_high"]
    gradient, loss, size = np.zeros_like(policy), policy.dtype.type(0), policy.size
    for row, advantage in enumerate(x["advantages"]):
        at = np.flatnonzero(x["mask"][row])
        a = np.broadcast_to(advantage, policy.shape[1:])[at]
        ratio = np.exp(policy[row, at] - x["old"][row, at])
        bound = np.where(a > 0, np.minimum(ratio, 1 + epsilon), np.maximum(ratio, 1 - epsilon))
        value, slope = -a * bound, np.where(bound == ratio, -a * ratio, 0)
        if x["beta"]:
            reference = x["reference"][row, at]
            weight = np.exp(reference - policy[row, at])
            value = value + x["beta"] * (weight - 1 - reference + policy[row, at])
            slope = slope + x["beta"] * (1 - weight)
        gradient[row, at] = slope / size
        loss += value.sum() / size
    return {"loss": loss, "gradient": gradient}


OPS = {"policy_loss": policy_loss}
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dr_grpo",),
        "aggregation": ("width",),
        "clip_width": ("one",),
        "rows": ("mask", "holes"),
        "ratio": ("off-policy",),
        "weights": (False,),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
    }
}
