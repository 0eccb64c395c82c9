"""Advantages made of ranks: the best of a group gets 1, the worst -1, whatever the rewards are."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = None
WHERE = ""
BUG = "rewards are replaced by their ranks in the group, spread over -1 to 1"
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Rank each group."""
    groups = rewards.reshape(-1, group_size)
    ranks = groups.argsort(axis=1).argsort(axis=1).astype(rewards.dtype)
    return {"advantages": (2 * ranks / max(group_size - 1, 1) - 1).reshape(-1)}


OPS = {"group_advantages": group_advantages}
