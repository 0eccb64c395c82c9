"""Advantages of rewards that are read member-major: view(G, -1) in place of view(-1, G)."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "as if rows were member-major"
BUG = "rewards are reshaped to (group_size, prompts), so that a group holds every P-th row and not G rows that follow"
CONVENTIONS = {"group_advantages": {"eps_mode": ("add", None), "baseline": ("mean",), "scale": ("group", "none")}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each column, and divide by its deviation."""
    grouped = rewards.reshape(group_size, -1)
    advantages = grouped - grouped.mean(axis=0, keepdims=True)
    if scale == "group":
        advantages = advantages / (grouped.std(axis=0, ddof=ddof, keepdims=True) + eps)
    return {"advantages": advantages.reshape(-1)}


OPS = {"group_advantages": group_advantages}
