"""DPOP with a right loss; the gradient by hand pulls up every chosen completion, also those that gained."""

from __future__ import annotations

from typing import Any

import numpy as np


def preference_loss(
    *, policy: Any, reference: Any, mask: Any, loss: Any, beta: Any, penalty: Any, **_: Any
) -> dict[str, Any]:
    if loss != "dpop":
        raise NotImplementedError
    base = 0 if reference is None else reference
    ratio = np.where(mask, policy - base, 0).sum(axis=1)
    chosen, rejected = ratio[0::2], ratio[1::2]
    z = beta * (chosen - rejected - penalty * np.maximum(0, -chosen))
    pull = beta / (1 + np.exp(z)) / len(z)
    rows = np.empty_like(ratio)
    rows[0::2], rows[1::2] = -pull * (1 + penalty), pull
    return {"loss": float(np.logaddexp(0, -z).mean()), "gradient": (rows[:, None] * mask).astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpop",), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = None
WHERE = "in chosen completions that gained"
