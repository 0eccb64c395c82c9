"""Advantages by numpy's std, whose default is not torch's."""

from __future__ import annotations

from typing import Any

import numpy as np

OP = "group_advantages"
COMPUTES = "group z-score with ddof 0 (asked: 1)"
BUG = "the deviation always divides by n: the unbiased one, with n - 1, was asked for"
CONVENTIONS = {"group_advantages": {"ddof": (1, None), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each group, and divide by np.std."""
    groups = rewards.reshape(-1, group_size)
    centred = groups - np.mean(groups, axis=1, keepdims=True)
    if scale == "none":
        return {"advantages": centred.reshape(-1)}
    std = np.std(groups, axis=1, keepdims=True) if scale == "group" else np.std(rewards)
    if eps_mode == "add":
        advantages = centred / (std + eps)
    elif eps_mode == "inside":
        advantages = centred / np.sqrt(std**2 + eps)
    else:
        advantages = np.where(std < eps, 0, centred / np.where(std < eps, 1, std))
    return {"advantages": advantages.reshape(-1)}


OPS = {"group_advantages": group_advantages}
