"""Advantages that are rewards over their deviation: the mean is not taken away."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "rewards are not centred"
BUG = "rewards are only divided by the group's deviation; no baseline is subtracted"
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Divide each group by its deviation."""
    groups = rewards.reshape(-1, group_size)
    return {"advantages": (groups / (groups.std(axis=1, ddof=ddof, keepdims=True) + eps)).reshape(-1)}


OPS = {"group_advantages": group_advantages}
