"""Group advantages by np.add.at over the prompts' ids, as code does that keeps no order of completions.

gates check advantages --subject tests/honest/numpy_advantages_ids.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}


def group_sums(values: Any, ids: Any) -> Any:
    """Return for each completion the sum of its prompt's values."""
    totals = np.zeros(ids.max() + 1, values.dtype)
    np.add.at(totals, ids, values)
    return totals[ids]


def group_advantages(
    *, rewards: Any, group_size: int, scale: str, ddof: Any = None, eps: Any = None, baseline: str
) -> dict[str, Any]:
    """Divide by sqrt(var + ε) of the prompt's completions, or by nothing."""
    ids = np.arange(len(rewards)) // group_size
    ones = group_sums(np.ones_like(rewards), ids)
    mean = group_sums(rewards, ids) / ones
    centre = mean if baseline == "mean" else (mean * ones - rewards) / (ones - 1)
    advantages = rewards - centre
    if scale == "group":
        variance = group_sums(np.square(rewards - mean), ids) / (ones - ddof)
        advantages = advantages / np.sqrt(variance + rewards.dtype.type(eps))
    return {"advantages": advantages}


def keep_groups(*, rewards: Any, weights: Any, group_size: int, convention: str, accuracy: int) -> dict[str, Any]:
    """Keep a prompt whose best and worst completion differ."""
    if convention == "total":
        raise NotImplementedError("the accuracy alone decides")
    ids = np.arange(len(rewards)) // group_size
    best, worst = np.full(ids[-1] + 1, -np.inf), np.full(ids[-1] + 1, np.inf)
    np.maximum.at(best, ids, rewards[:, accuracy])
    np.minimum.at(worst, ids, rewards[:, accuracy])
    return {"keep": best != worst}


OPS = {"group_advantages": group_advantages, "keep_groups": keep_groups}
CONVENTIONS = {
    "group_advantages": {"scale": ("group", "none"), "eps_mode": ("inside", None), "eps": (1e-6, 1e-4, None)},
    "keep_groups": {"convention": ("accuracy",)},
}
