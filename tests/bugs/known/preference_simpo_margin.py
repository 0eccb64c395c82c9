"""SimPO whose γ is inside the bracket: β(mean − mean − γ), where γ/β belongs."""

from __future__ import annotations

from typing import Any

import numpy as np


def preference_loss(*, policy: Any, mask: Any, loss: Any, beta: Any, margin: Any, **_: Any) -> dict[str, Any]:
    if loss != "simpo":
        raise NotImplementedError
    lengths = mask.sum(-1).astype(policy.dtype)
    average = np.sum(policy, axis=-1, where=mask) / lengths
    logits = beta * (average[::2] - average[1::2] - margin)
    sigma = 1 / (1 + np.exp(-logits))
    upstream = np.repeat((sigma - 1) * beta / len(logits), 2)
    upstream[1::2] *= -1
    gradient = (upstream / lengths)[:, None] * mask
    return {"loss": float(-np.log(sigma).mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("simpo",), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = "the margin γ multiplied by β"
