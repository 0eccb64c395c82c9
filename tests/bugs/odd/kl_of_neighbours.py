"""k1 smoothed over three tokens, which somebody found less noisy."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = None
WHERE = ""
BUG = "each token's estimate is the mean of its own and of its two neighbours'"
CONVENTIONS = {"token_kl": {"estimator": ("k1",), "rows": ("all",), "kl_ratio": ("none",)}}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return smoothed k1 of each token, or of each row."""
    if policy.ndim == 1 or mask is not None or lengths is not None:
        raise NotImplementedError("whole rows only")
    wide = np.pad(policy - reference, ((0, 0), (1, 1)), mode="edge")
    kl = (wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]) / 3
    if reduction == "sum":
        kl = kl.sum(axis=1)
    if reduction == "mean":
        kl = kl.mean(axis=1)
    return {"kl": kl}


OPS = {"token_kl": token_kl}
