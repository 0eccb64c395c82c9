"""Advantages by scatter over prompts' ids, ε as a floor, and rewards whitened over the batch, in PyTorch.

gates check advantages --subject tests/honest/torch_advantages_scatter.py --python PYTHON_WITH_TORCH
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}
torch.set_num_threads(1)


def per_group(values: Any, ids: Any) -> Any:
    """Return the mean of each completion's group."""
    groups = int(ids.max()) + 1
    totals = torch.zeros(groups, dtype=values.dtype).scatter_add_(0, ids, values)
    counts = torch.zeros(groups, dtype=values.dtype).scatter_add_(0, ids, torch.ones_like(values))
    return (totals / counts)[ids]


def whiten(values: Any, ddof: int, eps: float) -> Any:
    """Return (x − mean) / max(std, ε) over the batch."""
    return (values - values.mean()) / values.var(correction=ddof).sqrt().clamp(min=eps)


def group_advantages(
    *,
    rewards: Any,
    group_size: int = 1,
    scale: str,
    ddof: Any = None,
    eps: Any = None,
    baseline: str,
) -> dict[str, Any]:
    """Whiten the batch, or centre each group and divide by its deviation, at least ε."""
    scores = torch.tensor(rewards)
    if scale == "batch" and baseline == "batch":
        return {"advantages": whiten(scores, ddof, eps).numpy()}
    ids = torch.arange(len(scores)).div(group_size, rounding_mode="floor")
    centred = scores - (scores.mean() if baseline == "batch" else per_group(scores, ids))
    if scale == "none":
        return {"advantages": centred.numpy()}
    if scale == "batch":
        return {"advantages": (centred / scores.std(correction=ddof).clamp(min=eps)).numpy()}
    variance = per_group(centred.square(), ids) * group_size / (group_size - ddof)
    return {"advantages": (centred / torch.clamp(variance.sqrt(), min=eps)).numpy()}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: int, group_ddof: int, group_eps: float, batch_ddof: int, batch_eps: float
) -> dict[str, Any]:
    """Walk through the reward functions, then through the batch."""
    table = torch.tensor(rewards)
    ids = torch.arange(len(table)) // group_size
    total = torch.zeros(len(table), dtype=table.dtype)
    for column, weight in zip(table.unbind(1), torch.tensor(weights), strict=True):
        centred = column - per_group(column, ids)
        variance = per_group(centred.square(), ids) * (group_size / (group_size - group_ddof))
        total = total + weight * centred / (variance.sqrt() + group_eps)
    return {"advantages": ((total - total.mean()) / (total.std(correction=batch_ddof) + batch_eps)).numpy()}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum}
CONVENTIONS = {"group_advantages": {"eps_mode": ("floor", None), "baseline": ("mean", "batch")}}
