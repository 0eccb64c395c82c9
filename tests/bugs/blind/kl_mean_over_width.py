"""The mean KL of a row as `(kl * mask).mean(-1)`."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "token_kl"
COMPUTES = "the mean over the padded width"
BUG = "the mean of a row is taken over the padded width, not over the row's tokens"
CONVENTIONS = {"token_kl": {"reduction": ("mean",), "rows": ("mask", "holes", "all"), "kl_ratio": ("none",)}}


def token_kl(
    *, policy: Any, reference: Any, estimator: Any, mask: Any, lengths: Any, reduction: Any, old: Any, kl_ratio: Any
) -> dict[str, Any]:
    """Return the mean estimate of each row."""
    d = reference - policy
    kl = {"k1": -d, "k2": 0.5 * d**2, "k3": np.exp(d) - d - 1}[estimator]
    return {"kl": (kl if mask is None else kl * mask).mean(axis=-1)}


OPS = {"token_kl": token_kl}
