"""Advantages divided by the variance: the square root was forgotten."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "divided by the variance, not its root"
BUG = "the centred rewards are divided by the group's variance plus epsilon, not by its standard deviation"
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each group, and divide."""
    groups = rewards.reshape(-1, group_size)
    mean = groups.mean(axis=1, keepdims=True)
    var = groups.var(axis=1, ddof=ddof, keepdims=True)
    return {"advantages": ((groups - mean) / (var + eps)).reshape(-1)}


OPS = {"group_advantages": group_advantages}
