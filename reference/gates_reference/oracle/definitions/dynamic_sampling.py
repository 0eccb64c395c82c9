"""What DAPO does to a batch before its loss: groups without a difference are dropped, over-long completions penalised."""

import numpy as np

from gates_reference.oracle.inputs import Floats


def total_scores(rewards: Floats, weights: Floats) -> Floats:
    """The weighted sum of each row's rewards, where NaN counts 0; NaN for a row whose rewards are all NaN."""
    unscored = np.all(np.isnan(rewards), axis=1)
    return np.where(unscored, np.nan, np.sum(np.where(np.isnan(rewards), 0.0, rewards) * weights, axis=1))


def differs(group: Floats) -> bool:
    """Whether the largest scored reward of a group exceeds the smallest. DAPO (arXiv 2503.14476), eq. 11."""
    scored = group[~np.isnan(group)]
    return bool(scored.size) and bool(np.max(scored) > np.min(scored))


def overlong_penalty(n: int, limit: int, buffer: int) -> float:
    """The penalty 0 if n <= L_max - L_c, (L_max - L_c - n) / L_c up to L_max, then -1. DAPO (arXiv 2503.14476), eq. 13."""
    if n <= limit - buffer:
        return 0.0
    return (limit - buffer - n) / buffer if n <= limit else -1.0


def scored(t: int, n: int, *, ended: bool, mask_truncated: bool) -> bool:
    """Whether slot t of a completion of n tokens is in the loss: no slot of a truncated one, if those are masked.

    TRL's `mask_truncated_completions` (trl/trainer/grpo_trainer.py); DAPO (arXiv 2503.14476), section 3.4, "Overlong Filtering".
    """
    return t < n and (ended or not mask_truncated)
