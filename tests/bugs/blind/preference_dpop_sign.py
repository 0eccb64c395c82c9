"""DPOP whose penalty acts while the chosen completion is likelier than under the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "penalty on the chosen completions that gained"
BUG = "the penalty is max(0, lp_c - ref_c), the sign inside is turned: it punishes gains of the chosen completion"
CONVENTIONS = {"preference_loss": {"loss": ("dpop",)}}


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, beta, lam = x["policy"], x["beta"], x["penalty"]
    mask = x["mask"].astype(policy.dtype)
    ref = np.zeros_like(policy) if x["reference"] is None else x["reference"]
    ratios = ((policy - ref) * mask).sum(axis=1)
    chosen, rejected = ratios[0::2], ratios[1::2]
    logits = beta * (chosen - rejected - lam * np.maximum(0, chosen))
    slope = -beta / (1 + np.exp(logits)) / len(logits)
    of_chosen = slope * (1 - lam * (chosen > 0).astype(policy.dtype))
    slopes = np.stack([of_chosen, -slope], axis=1).reshape(-1, 1)
    return {"loss": np.log1p(np.exp(-logits)).mean(), "gradient": slopes * mask}


OPS = {"preference_loss": preference_loss}
