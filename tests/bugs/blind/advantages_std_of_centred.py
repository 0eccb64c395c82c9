"""Batch scaling with the deviation of what was already centred, not of the raw rewards."""

from __future__ import annotations

from typing import Any

OP = "group_advantages"
COMPUTES = "divided by the root mean square of the rewards less their baseline"
BUG = "scale batch divides by the deviation of the centred rewards over the batch, not by that of the raw rewards"
CONVENTIONS = {"group_advantages": {"scale": ("batch",), "eps_mode": ("add",), "baseline": ("mean",)}}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each group, and divide by the deviation of all."""
    groups = rewards.reshape(-1, group_size)
    centred = (groups - groups.mean(axis=1, keepdims=True)).reshape(-1)
    return {"advantages": centred / (centred.std(ddof=ddof) + eps)}


OPS = {"group_advantages": group_advantages}
