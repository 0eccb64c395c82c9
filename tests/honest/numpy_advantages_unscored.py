"""Advantages in NumPy of rewards that may be NaN, not scored: nanmean, nanstd, and 0 where nothing is left."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {"nan_rewards": ("unscored",), "eps_mode": ("add", "inside", None), "baseline": ("mean",)},
    "normalise_then_sum": {"nan_rewards": ("unscored",)},
}


def z_score(x: Any, ddof: int, eps: float, axis: int) -> Any:
    """Return (x − mean) / (std + ε) over what is scored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing scored, or one alone with ddof 1
        std = np.nanstd(x, axis=axis, ddof=ddof, keepdims=True)
        return (x - np.nanmean(x, axis=axis, keepdims=True)) / (std + eps)


def group_advantages(
    *, rewards: Any, group_size: int, scale: str, ddof: Any, eps: Any, eps_mode: Any, baseline: str
) -> dict[str, Any]:
    """Leave NaN out of each group, and give it 0."""
    if baseline != "mean":
        raise NotImplementedError("only the mean of the group is a baseline here")
    groups = rewards.reshape(-1, group_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        centred = groups - np.nanmean(groups, axis=1, keepdims=True)
        if scale != "none":
            spread = groups if scale == "group" else groups.reshape(1, -1)
            std = np.nanstd(spread, axis=1, ddof=ddof, keepdims=True)
            centred = centred / (np.sqrt(std**2 + eps) if eps_mode == "inside" else std + eps)
    return {"advantages": np.nan_to_num(centred).reshape(-1)}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: int, group_ddof: int, group_eps: float, batch_ddof: int, batch_eps: float
) -> dict[str, Any]:
    """Sum what is scored, and leave a row out of the batch that no function has scored."""
    groups = rewards.reshape(-1, group_size, rewards.shape[1])
    scores = z_score(groups, group_ddof, group_eps, axis=1).reshape(rewards.shape)
    total = np.nansum(scores * weights, axis=1)
    total[np.isnan(rewards).all(axis=1)] = np.nan
    return {"advantages": np.nan_to_num(z_score(total, batch_ddof, batch_eps, axis=0))}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum}
