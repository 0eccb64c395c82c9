"""DPO and hinge from token means of the log-probs, as a helper for perplexity gives them."""

from __future__ import annotations

from typing import Any

import numpy as np


def mean_logps(logps: Any, mask: Any) -> Any:
    return (logps * mask).sum(-1) / np.maximum(mask.sum(-1), 1)


def preference_loss(
    *, policy: Any, reference: Any, mask: Any, loss: Any, beta: Any, label_smoothing: Any, **_: Any
) -> dict[str, Any]:
    if loss not in {"dpo", "hinge"} or label_smoothing or reference is None:
        raise NotImplementedError
    chosen, rejected = slice(0, None, 2), slice(1, None, 2)
    ratio = mean_logps(policy, mask) - mean_logps(reference, mask)
    z = beta * (ratio[chosen] - ratio[rejected])
    if loss == "dpo":
        value, dz = np.log1p(np.exp(-z)), -1 / (1 + np.exp(z))
    else:
        value, dz = np.maximum(1 - z, 0), np.where(z < 1, -1.0, 0.0)
    gradient = mask / np.maximum(mask.sum(-1, keepdims=True), 1)
    gradient[chosen] *= (beta * dz / len(z))[:, None]
    gradient[rejected] *= (-beta * dz / len(z))[:, None]
    return {"loss": float(value.mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpo", "hinge"), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = "averaged over each completion's tokens"
