"""Advantages in plain NumPy, in the dtype of the data: a subject that must never be called wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

VERSIONS = {"numpy": np.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each group, and divide by a deviation."""
    groups = rewards.reshape(-1, group_size)
    if baseline == "mean":
        advantages = groups - groups.mean(axis=1, keepdims=True)
    else:
        advantages = groups - (groups.sum(axis=1, keepdims=True) - groups) / (group_size - 1)
    if scale != "none":
        std = groups.std(axis=1, ddof=ddof, keepdims=True) if scale == "group" else rewards.std(ddof=ddof)
        if eps_mode == "add":
            advantages = advantages / (std + eps)
        elif eps_mode == "inside":
            advantages = advantages / np.sqrt(std**2 + eps)
        else:
            advantages = np.where(std < eps, 0, advantages / np.where(std < eps, 1, std))
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: Any, group_ddof: Any, group_eps: Any, batch_ddof: Any, batch_eps: Any
) -> dict[str, Any]:
    """Normalise each reward function in its group, sum with weights, normalise over the batch."""
    groups = rewards.reshape(-1, group_size, rewards.shape[1])
    mean = groups.mean(axis=1, keepdims=True)
    std = groups.std(axis=1, ddof=group_ddof, keepdims=True)
    scores = ((groups - mean) / (std + group_eps)).reshape(rewards.shape)
    total = (scores * weights).sum(axis=1)
    return {"advantages": (total - total.mean()) / (total.std(ddof=batch_ddof) + batch_eps)}


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
    """Walk each row from its last token to its first."""
    advantages = np.zeros_like(rewards)
    if rewards.ndim == 1:
        ends = np.cumsum(lengths)
        rows = [np.arange(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    elif lengths is not None:
        rows = [np.ravel_multi_index((np.full(n, i), np.arange(n)), rewards.shape) for i, n in enumerate(lengths)]
    else:
        keep = np.ones(rewards.shape, bool) if mask is None else mask
        rows = [np.flatnonzero(k) + i * rewards.shape[1] for i, k in enumerate(keep)]
    kind = rewards.dtype.type
    r, v, out = rewards.reshape(-1), values.reshape(-1), advantages.reshape(-1)
    done = np.zeros(r.shape, bool) if terminal is None else terminal.reshape(-1)
    gamma, lam = kind(gamma), kind(lam)
    for i, row in enumerate(rows):
        next_value, last = kind(0) if bootstrap is None else bootstrap[i], kind(0)
        for t in row[::-1]:
            live = kind(1 - done[t])
            delta = r[t] + gamma * next_value * live - v[t]
            last = delta + gamma * lam * live * last
            out[t], next_value = last, v[t]
    return {"advantages": advantages}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum, "gae": gae}
