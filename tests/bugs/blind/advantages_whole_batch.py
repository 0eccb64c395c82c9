"""Advantages whitened over the whole batch: the group is never looked at."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "the whole batch as one group"
BUG = "mean and deviation are those of the whole batch, not of each prompt's group"
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Whiten the rewards."""
    return {"advantages": (rewards - rewards.mean()) / (rewards.std(ddof=ddof) + eps)}


OPS = {"group_advantages": group_advantages}
