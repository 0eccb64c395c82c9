"""What the MLX trainer's losses are made of, as ops: ratios and their statistics, weights, divergences, advantages, DAPO's filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from gates.subjects.mlx_trainer.rows import grid_of
from gates_reference.trainer import double
from gates_reference.trainer.algorithms import advantages, corrections, dapo, options, protocol, ratio, registry
from gates_reference.trainer.metrics import ratios

Array = np.ndarray[Any, Any]

CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "keep_groups": {"nan_rewards": ("unscored",)},
    **{name: {"dtype": ("float32",)} for name in ("importance_ratio", "token_kl", "ratio_statistics")},
    **{
        name: {"dtype": ("float32",), "nan_rewards": ("unscored",)}
        for name in ("group_advantages", "normalise_then_sum")
    },
    "importance_weights": {"dtype": ("float32",), "nan_sampling": ("unrecorded",)},
}


def importance_ratio(
    *, policy: Array, old: Array, level: str, mask: Array | None = None, lengths: Array | None = None
) -> dict[str, Any]:
    """The ratio of each token (0 where none stands), or of each row by its mean or summed log-ratio."""
    grid = grid_of(np.shape(policy), mask, lengths)
    left, right = (mx.array(grid.wide(name, x)) for name, x in (("policy", policy), ("old", old)))
    marks = mx.array(grid.mask)
    pair = ratio.token(ratio.select(marks, left), ratio.select(marks, right))
    if level == "token":
        return {"ratio": grid.back(np.array(ratio.select(marks, double.exp(*pair))))}
    counts = marks.sum(axis=1, keepdims=True).astype(mx.float32)
    row = ratio.sequence_mean(pair, counts) if level == "seq_mean" else ratio.sequence_sum(pair)
    return {"ratio": np.array(double.exp(*row))[:, 0]}


def importance_weights(
    *,
    old: Array,
    sampling: Array,
    correction: str,
    level: str,
    c_min: float | None,
    c_max: float,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> dict[str, Any]:
    """The weights of each token, or of each row."""
    grid = grid_of(np.shape(old), mask, lengths)
    left, right = (mx.array(grid.wide(name, x)) for name, x in (("old", old), ("sampling", sampling)))
    found = corrections.weights(
        left, right, mx.array(grid.mask), correction=correction, level=level, c_min=c_min, c_max=c_max
    )
    return {"weights": grid.back(np.array(found)) if level == "token" else np.array(found)[:, 0]}


def token_kl(
    *,
    policy: Array,
    reference: Array,
    estimator: str,
    mask: Array | None = None,
    lengths: Array | None = None,
    reduction: str,
    old: Array | None = None,
    kl_ratio: str = "none",
) -> dict[str, Any]:
    """The estimate of each token, or its sum or mean over each row."""
    if len(np.shape(policy)) == 1 and lengths is None:
        lengths = np.array(np.shape(policy))
    grid = grid_of(np.shape(policy), mask, lengths)
    marks = mx.array(grid.mask)
    left, right = (
        ratio.select(marks, mx.array(grid.wide(name, x))) for name, x in (("policy", policy), ("reference", reference))
    )
    before = None if old is None else ratio.select(marks, mx.array(grid.wide("old", old)))
    counts = marks.sum(axis=1, keepdims=True).astype(mx.float32)
    values = ratio.weighted_kl(
        ratio.token_kl(left, right, estimator),
        left,
        right,
        ratio.token(left, before),
        counts,
        estimator=estimator,
        kl_ratio=kl_ratio,
    )
    values = ratio.select(marks, values)
    if reduction == "none":
        return {"kl": grid.back(np.array(values))}
    terms = double.Double(values, mx.zeros_like(values))
    row = double.row_mean(terms, mx.maximum(counts, 1.0)) if reduction == "mean" else double.row_sum(terms)
    return {"kl": np.array(row.high + row.low)[:, 0]}


def group_advantages(
    *,
    rewards: Array,
    group_size: int,
    scale: Any,
    ddof: int | None,
    eps: float | None,
    eps_mode: str | None,
    baseline: Any,
) -> dict[str, Any]:
    """The advantages (B,) by the trainer's settings of the same names."""
    given: dict[str, Any] = {"advantage_ddof": ddof, "advantage_epsilon": eps, "advantage_epsilon_mode": eps_mode}
    settings = options.Settings(
        advantage_scale=scale,
        advantage_baseline=baseline,
        **{name: value for name, value in given.items() if value is not None},
    )
    return {"advantages": advantages.grouped(np.asarray(rewards), group_size, settings)}


def normalise_then_sum(
    *,
    rewards: Array,
    weights: Array,
    group_size: int,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
) -> dict[str, Any]:
    """The advantages (B,) of several reward functions."""
    found = advantages.normalised_then_summed(
        rewards, weights, group_size, group=(group_ddof, group_eps), batch=(batch_ddof, batch_eps)
    )
    return {"advantages": found}


def ratio_statistics(
    *,
    policy: Array,
    behaviour: Array,
    epsilon_low: float,
    epsilon_high: float,
    advantages: Array | None,
    mask: Array | None = None,
    lengths: Array | None = None,
) -> dict[str, Any]:
    """What the trainer's metrics say of ratios, under the same names."""
    grid = grid_of(np.shape(policy), mask, lengths)
    left, right = (grid.wide(name, x).astype(np.float64) for name, x in (("policy", policy), ("behaviour", behaviour)))
    signs = None if advantages is None else np.asarray(advantages, np.float64)
    bounds = (epsilon_low, epsilon_high)
    return dict(ratios.statistics(left, right, grid.mask, bounds=bounds, advantages=signs))


def keep_groups(
    *, rewards: Array, weights: Array, group_size: int, convention: str, accuracy: int | None
) -> dict[str, Any]:
    """The groups that DAPO's dynamic sampling keeps."""
    table = protocol.Rewards(rewards, weights, group_size, np.ones(len(rewards), np.int64), accuracy)
    return {"keep": registry.create("dapo", {"dynamic_sampling": convention}).keep(table)}


def overlong_penalty(*, lengths: Array, limit: int, buffer: int) -> dict[str, Any]:
    """DAPO's penalty of each completion."""
    return {"penalty": dapo.overlong(lengths, limit, buffer)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "importance_ratio": importance_ratio,
    "importance_weights": importance_weights,
    "token_kl": token_kl,
    "group_advantages": group_advantages,
    "normalise_then_sum": normalise_then_sum,
    "ratio_statistics": ratio_statistics,
    "keep_groups": keep_groups,
    "overlong_penalty": overlong_penalty,
}
