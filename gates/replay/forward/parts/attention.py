"""Causal attention with grouped queries (Ainslie et al. 2023, arXiv 2305.13245)."""

import numpy as np

from gates.replay.forward.arrays import Array
from gates.replay.forward.modules import Modules
from gates.replay.forward.parts.functions import soft_cap, softmax


def heads(x: Array, count: int) -> Array:
    """Split the last axis of x (B, L, width) into heads: (B, L, heads, width of a head)."""
    return x.reshape(*x.shape[:2], count, -1)


def project(modules: Modules, x: Array, count: int, kv_count: int) -> tuple[Array, Array, Array]:
    """Return queries, keys and values, each (B, L, heads, width of a head)."""
    return (
        heads(modules.linear("q_proj", x), count),
        heads(modules.linear("k_proj", x), kv_count),
        heads(modules.linear("v_proj", x), kv_count),
    )


def attend(
    queries: Array, keys: Array, values: Array, *, scale: float, window: int | None = None, cap: float | None = None
) -> Array:
    """Return softmax(scale · q kᵀ) v of each head, joined: (B, L, heads · width).

    Position t sees positions up to itself, with a window the last `window` of them. `cap` soft-caps the scores.
    """
    rows, length, count, width = queries.shape
    groups = keys.shape[2]
    shape = (rows, groups, count // groups, length)
    grouped = queries.transpose(0, 2, 1, 3).reshape(rows, groups, -1, width)
    scores = scale * (grouped @ keys.transpose(0, 2, 3, 1))
    if cap is not None:
        scores = soft_cap(scores, cap)
    seen = np.where(visible(length, window), scores.reshape(*shape, length), -np.inf)
    weights = softmax(seen).reshape(rows, groups, -1, length)
    mixed = (weights @ values.transpose(0, 2, 1, 3)).reshape(rows, count, length, -1)
    return mixed.transpose(0, 2, 1, 3).reshape(rows, length, -1)


def visible(length: int, window: int | None) -> np.ndarray:
    """Return which positions (columns) each position (row) sees."""
    behind = np.arange(length)[:, None] - np.arange(length)
    return (behind >= 0) if window is None else (behind >= 0) & (behind < window)
