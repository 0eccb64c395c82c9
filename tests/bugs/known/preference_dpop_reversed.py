"""DPOP whose penalty falls on the chosen completions that gained: policy − reference inside max(0, ·)."""

from __future__ import annotations

from typing import Any

import numpy as np


def log_sigmoid(x: Any) -> Any:
    return -np.logaddexp(0, -x)


def preference_loss(
    *, policy: Any, reference: Any, mask: Any, loss: Any, beta: Any, penalty: Any, **_: Any
) -> dict[str, Any]:
    if loss != "dpop":
        raise NotImplementedError
    difference = policy if reference is None else policy - reference
    ratio = (difference * mask).sum(axis=1)
    chosen, rejected = ratio[::2], ratio[1::2]
    z = beta * (chosen - rejected - penalty * np.maximum(0, chosen))
    dz = -(1 - np.exp(log_sigmoid(z))) * beta / len(z)
    by_row = np.empty_like(ratio)
    by_row[::2] = dz * (1 - penalty * (chosen > 0))
    by_row[1::2] = -dz
    return {"loss": float(-log_sigmoid(z).mean()), "gradient": (by_row[:, None] * mask).astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("dpop",), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = "DPOP's penalty on the chosen completions that gained"
