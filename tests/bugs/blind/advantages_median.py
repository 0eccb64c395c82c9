"""Advantages less the median of the group, which somebody took for robustness."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "group_advantages"
COMPUTES = "baseline: the median of the group"
BUG = "the baseline is the median of the group's rewards, not their mean"
CONVENTIONS = {"group_advantages": {"scale": ("group", "none"), "eps_mode": ("add", None), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Take the median away, and divide by the deviation."""
    groups = rewards.reshape(-1, group_size)
    advantages = groups - np.median(groups, axis=1, keepdims=True)
    if scale == "group":
        advantages = advantages / (groups.std(axis=1, ddof=ddof, keepdims=True) + eps)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages}
