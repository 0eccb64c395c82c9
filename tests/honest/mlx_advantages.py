"""Advantages in MLX, in the dtype of the data; float64 on the CPU, where alone MLX has it."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {}
mx.set_default_device(mx.cpu)


def _array(x: Any, dtype: Any = None) -> Any:
    x = np.ascontiguousarray(x)
    return mx.array(x, dtype=dtype or (mx.float64 if x.dtype == np.float64 else mx.float32))


def group_advantages(
    *, rewards: Any, group_size: Any, scale: Any, ddof: Any, eps: Any, eps_mode: Any, baseline: Any
) -> dict[str, Any]:
    """Center each group, and divide by a deviation."""
    rewards = _array(rewards)
    groups = rewards.reshape(-1, group_size)
    mean = groups.mean(axis=1, keepdims=True)
    advantages = groups - mean
    if baseline == "leave-one-out":
        advantages = advantages * (group_size / (group_size - 1))
    if scale != "none":
        std = mx.std(groups, axis=1, keepdims=True, ddof=ddof) if scale == "group" else mx.std(groups, ddof=ddof)
        if eps_mode == "add":
            advantages = advantages / (std + eps)
        elif eps_mode == "inside":
            advantages = advantages * mx.rsqrt(mx.square(std) + eps)
        else:
            advantages = mx.where(std < eps, mx.zeros_like(advantages), advantages / std)
    return {"advantages": np.array(advantages.reshape(-1))}


def normalise_then_sum(
    *, rewards: Any, weights: Any, group_size: Any, group_ddof: Any, group_eps: Any, batch_ddof: Any, batch_eps: Any
) -> dict[str, Any]:
    """Normalise each reward function in its group, sum with weights, normalise over the batch."""
    rewards, weights = _array(rewards), _array(weights)
    groups = rewards.reshape(-1, group_size, rewards.shape[1])
    scores = (groups - groups.mean(axis=1, keepdims=True)) / (
        mx.std(groups, axis=1, keepdims=True, ddof=group_ddof) + group_eps
    )
    total = (scores.reshape(rewards.shape) * weights).sum(axis=1)
    return {"advantages": np.array((total - total.mean()) / (mx.std(total, ddof=batch_ddof) + batch_eps))}


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
    """Step through whole columns from the last to the first."""
    shape = rewards.shape
    if rewards.ndim == 1:
        place = keep = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
    else:
        place = np.ones(shape, bool)
        keep = place if mask is None else mask
        if lengths is not None:
            keep = np.arange(shape[1]) < np.asarray(lengths)[:, None]

    def table(x: Any) -> Any:
        wide = np.zeros(keep.shape, rewards.dtype)
        wide[place] = np.asarray(x, rewards.dtype).reshape(-1)
        return _array(wide)

    r, v, done = table(rewards), table(values), table(np.zeros(shape) if terminal is None else terminal)
    after = _array(np.zeros(len(keep), rewards.dtype) if bootstrap is None else bootstrap)
    last, marks, columns = mx.zeros_like(after), mx.array(keep), []
    for t in reversed(range(keep.shape[1])):
        live = 1 - done[:, t]
        delta = r[:, t] + gamma * after * live - v[:, t]
        here = delta + (gamma * lam) * live * last
        last, after = mx.where(marks[:, t], here, last), mx.where(marks[:, t], v[:, t], after)
        columns.append(mx.where(marks[:, t], here, mx.zeros_like(here)))
    return {"advantages": np.array(mx.stack(columns[::-1], axis=1))[place].reshape(shape)}


OPS = {"group_advantages": group_advantages, "normalise_then_sum": normalise_then_sum, "gae": gae}
