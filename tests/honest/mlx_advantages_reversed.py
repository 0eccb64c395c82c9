"""GAE by a reversed loop over columns, and leave-one-out advantages, in MLX.

gates check advantages --subject tests/honest/mlx_advantages_reversed.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

VERSIONS = {"mlx": mx.__version__}
mx.set_default_device(mx.cpu)


def gae(*, rewards: Any, values: Any, gamma: float, lam: float, mask: Any = None) -> dict[str, Any]:
    """Return PPO's advantages of completions; a masked slot hands on what comes after it."""
    r, v = mx.array(rewards), mx.array(values)
    keep = mx.ones(r.shape) if mask is None else mx.array(mask).astype(mx.float32)
    running = mx.zeros(r.shape[0])
    following = mx.zeros(r.shape[0])
    columns = []
    for t in range(r.shape[1] - 1, -1, -1):
        on = keep[:, t]
        delta = r[:, t] + gamma * following - v[:, t]
        running = on * (delta + gamma * lam * running) + (1 - on) * running
        following = on * v[:, t] + (1 - on) * following
        columns.append(running * on)
    return {"advantages": np.array(mx.stack(columns[::-1], axis=1))}


def group_advantages(*, rewards: Any, group_size: int, baseline: str, scale: str) -> dict[str, Any]:
    """Return (G R − Σ R) / (G − 1): the reward less the mean of the other completions."""
    if scale != "none" or baseline != "leave-one-out":
        raise NotImplementedError("leave-one-out alone")
    groups = mx.array(rewards).reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    return {"advantages": np.array((centred * (group_size / (group_size - 1))).flatten())}


OPS = {"gae": gae, "group_advantages": group_advantages}
CONVENTIONS = {
    "gae": {"dtype": ("float32",)},
    "group_advantages": {"dtype": ("float32",), "scale": ("none",), "baseline": ("leave-one-out",)},
}
