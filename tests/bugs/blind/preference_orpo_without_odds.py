"""ORPO that compares log-probs and not log-odds."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "preference_loss"
COMPUTES = "without log(1 − π̄)"
BUG = "the ratio term is log sigma(lp_c - lp_r) of mean log-probs: log(1 - p) is left out, so that no odds are taken"
CONVENTIONS = {"preference_loss": {"loss": ("orpo",), "nll_tokens": ("completion",)}}


def preference_loss(**x: Any) -> dict[str, Any]:
    """Return loss and gradient."""
    policy, lam = x["policy"], x["beta"]
    mask = x["mask"].astype(policy.dtype)
    counts = mask.sum(axis=1)
    logps = (policy * mask).sum(axis=1) / counts
    logits = logps[0::2] - logps[1::2]
    loss = -logps[0::2] + lam * np.log1p(np.exp(-logits))
    slope = -lam / (1 + np.exp(logits))
    slopes = np.stack([slope - 1, -slope], axis=1).reshape(-1) / counts / len(logits)
    return {"loss": loss.mean(), "gradient": slopes[:, None] * mask}


OPS = {"preference_loss": preference_loss}
