"""ORPO with log(1 − p) in two branches that meet at −log 2, in NumPy with gradients by hand.

gates check preference.orpo --subject tests/honest/numpy_preference_odds.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def log1mexp(x: Any) -> Any:
    """Return log(1 − e^x) for x < 0."""
    near = x > -np.log(2)
    return np.where(near, np.log(-np.expm1(np.where(near, x, -1))), np.log1p(-np.exp(np.where(near, -1, x))))


def preference_loss(*, policy: Any, mask: Any, beta: float) -> dict[str, Any]:
    """Return the likelihood of the chosen completions and β times the odds term."""
    counts = mask.sum(axis=1).astype(policy.dtype)
    means = np.where(mask, policy, 0).sum(axis=1) / counts
    log_odds = means - log1mexp(means)
    z = log_odds[0::2] - log_odds[1::2]
    loss = (np.logaddexp(0, -z) * beta - means[0::2]).mean()
    pull = beta / (1 + np.exp(z))  # −∂/∂z
    slope = -1 / np.expm1(means)  # of the log odds by the mean
    by_mean = np.empty_like(means)
    by_mean[0::2] = -1 - pull * slope[0::2]
    by_mean[1::2] = pull * slope[1::2]
    return {"loss": loss, "gradient": np.where(mask, (by_mean / (counts * len(z)))[:, None], 0).astype(policy.dtype)}


OPS = {"preference_loss": preference_loss}
CONVENTIONS = {"preference_loss": {"loss": ("orpo",), "nll_tokens": ("completion",)}}
