"""Advantages in NumPy as other authors write them: verl's leave-one-out, a reciprocal, λ-returns, whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def _std(x: Any, ddof: Any) -> Any:
    mean = sum(x.tolist(), x.dtype.type(0)) / x.dtype.type(len(x))
    return np.sqrt(np.sum(np.square(x - mean)) / x.dtype.type(max(len(x) - ddof, 1)))


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Take one group after another, and multiply by the reciprocal of its deviation."""
    kind = rewards.dtype.type
    out = np.empty_like(rewards)
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        mean = np.mean(group)
        if baseline == "mean":
            difference = group - mean
        else:
            difference = group * group_size / (group_size - 1) - mean * group_size / (group_size - 1)
        if scale != "none":
            std = _std(group if scale == "group" else rewards, ddof)
            if eps_mode == "threshold":
                difference = difference * (kind(0) if std < eps else kind(1) / std)
            else:
                divisor = std + kind(eps) if eps_mode == "add" else np.sqrt(std * std + kind(eps))
                difference = difference * (kind(1) / divisor)
        out[start : start + group_size] = difference
    return {"advantages": out}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: Any, group_ddof: Any, group_eps: Any, batch_ddof: Any, batch_eps: Any
) -> dict[str, Any]:
    """Normalise column by column, and add up with a product of matrices."""
    total = np.zeros(len(rewards), rewards.dtype)
    for weight, column in zip(weights, rewards.T, strict=True):
        found = group_advantages(
            rewards=column, group_size=group_size, scale="group", ddof=group_ddof, eps=group_eps, eps_mode="add",
            baseline="mean",
        )  # fmt: skip
        total += weight * found["advantages"]
    return {"advantages": (total - np.mean(total)) / (_std(total, batch_ddof) + batch_eps)}


def gae(
    *,
    rewards: Any,
    values: Any,
    gamma: Any,
    lam: Any,
    bootstrap: Any = None,
    terminal: Any = None,
    mask: Any = None,
    lengths: Any = None,
) -> dict[str, Any]:
    """Step through whole columns, with λ-returns, and subtract the values at the end."""
    shape = rewards.shape
    if rewards.ndim == 1:
        keep = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        place = keep
    else:
        place = np.ones(shape, bool)
        keep = place if mask is None else mask
        if lengths is not None:
            keep = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    r, v, done = (np.zeros(keep.shape, rewards.dtype) for _ in range(3))
    r[place], v[place] = rewards.reshape(-1), values.reshape(-1)
    if terminal is not None:
        done[place] = terminal.reshape(-1)
    following = np.zeros(len(r), r.dtype) if bootstrap is None else bootstrap
    returned = following
    out = np.zeros_like(r)
    for t in reversed(range(r.shape[1])):
        here = r[:, t] + gamma * (1 - done[:, t]) * ((1 - lam) * following + lam * returned)
        out[:, t] = np.where(keep[:, t], here - v[:, t], 0)
        returned = np.where(keep[:, t], here, returned)
        following = np.where(keep[:, t], v[:, t], following)
    return {"advantages": out[place].reshape(shape).astype(rewards.dtype)}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum, "gae": gae}
