"""RLOO's baseline divided by G: the sum of the others over one too many."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "the sum of the other members of the group divided by their number plus one, G"
BUG = "the leave-one-out baseline is the sum of the other rewards divided by G, where it should be G - 1"
CONVENTIONS = {"group_advantages": {"scale": ("none",), "baseline": ("leave-one-out",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Take the mean of the others away."""
    groups = rewards.reshape(-1, group_size)
    others = (groups.sum(axis=1, keepdims=True) - groups) / group_size
    return {"advantages": (groups - others).reshape(-1)}


OPS = {"group_advantages": group_advantages}
