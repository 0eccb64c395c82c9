"""Mutations of the estimators of the KL; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.edited import edited
from gates.families.kl.program import FULL, TOKEN
from gates.families.patching import Fn, mutation

reversed_arguments = edited(FULL, "KL(reference ‖ policy), the arguments exchanged")
swapped_arguments = edited(TOKEN, "policy and reference exchanged: d = policy − reference")
without_half = edited(TOKEN, "d², k2 without its ½ (asked: k2 = d²/2)")
clamped_below = edited(TOKEN, "the clamp bounds from below only")
swapped_levels = edited(
    TOKEN,
    "times the ratio of the row, exp(mean D) (asked: times the ratio of the token)",
    "times the ratio of the token (asked: times the ratio of the row, exp(mean D))",
)
inverted_ratio = edited(
    TOKEN,
    "times the token's ratio inverted, exp(old − policy) (asked: times the ratio of the token)",
    "times the row's ratio inverted (asked: times the ratio of the row, exp(mean D))",
)
no_ratio = edited(TOKEN, "not multiplied by a ratio")
padded_mean = edited(
    TOKEN,
    "times the row's ratio with D averaged over the padded width (asked: times the ratio of the row, exp(mean D))",
)


@mutation
def unweighted(_original: Fn, policy: Any, reference: Any) -> Any:
    """Average log p - log q over the vocabulary instead of under p."""
    possible = policy > -np.inf
    return float(np.mean(policy[possible] - reference[possible]))


@mutation
def float32_divergence(_original: Fn, policy: Any, reference: Any) -> Any:
    """Sum the terms sequentially in float32."""
    possible = policy > -np.inf
    left, right = policy[possible], reference[possible]
    return float(np.add.accumulate((np.exp(left) * (left - right)).astype(np.float32))[-1])


@mutation
def expm1_minus_d(_original: Fn, d: Any) -> Any:
    """Compute k3 as expm1(d) − d, which cancels for small d."""
    return np.expm1(d) - d


@mutation
def inverted(original: Fn, d: Any) -> Any:
    """Swap policy and reference in an estimator."""
    return original(-d)
