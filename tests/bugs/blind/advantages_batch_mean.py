"""Advantages less the mean of the batch, over the deviation of the group."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "group_advantages"
COMPUTES = "baseline: the mean of the whole batch"
BUG = "the baseline is the mean of all rewards of the batch; only the deviation is of the group"
CONVENTIONS = {"group_advantages": {"scale": ("group", "none"), "eps_mode": ("add", None), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center, and divide by the deviation of each group."""
    advantages = rewards - rewards.mean()
    if scale == "group":
        std = rewards.reshape(-1, group_size).std(axis=1, ddof=ddof)
        advantages = advantages / (np.repeat(std, group_size) + eps)
    return {"advantages": advantages}


OPS = {"group_advantages": group_advantages}
