"""IPO by means whose target is 1/β: τ⁻¹/2 of the paper read as τ⁻¹. The gradient is written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np


def preference_loss(
    *, policy: Any, reference: Any, mask: Any, loss: Any, beta: Any, lengths: Any, **_: Any
) -> dict[str, Any]:
    if loss != "ipo" or lengths != "mean":
        raise NotImplementedError
    n = mask.sum(axis=1)
    base = np.zeros_like(policy) if reference is None else reference
    h = np.where(mask, policy - base, 0).sum(axis=1) / n
    off = h[0::2] - h[1::2] - 1 / beta
    sign = np.where(np.arange(len(policy)) % 2, -1, 1)
    gradient = np.where(mask, (2 * np.repeat(off, 2) * sign / n / len(off))[:, None], 0)
    return {"loss": float((off * off).mean()), "gradient": gradient.astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("ipo",), "rows": ("mask",), "prompt": ("any",)}}
COMPUTES = "target 1/β"
