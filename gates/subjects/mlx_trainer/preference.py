"""The MLX trainer's preference algorithms as ops: a loss of pairs, and who is chosen by scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from gates_reference.trainer.algorithms import protocol, registry

Array = np.ndarray[Any, Any]

LOSSES = {"dpo": "sigmoid", "hinge": "hinge", "ipo": "ipo"}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "preference_loss": {"loss": tuple(LOSSES), "dtype": ("float32",)},
    "winner_loss": {"dtype": ("float32",)},
    "prefer": {"ties": ("first",), "nan_rewards": ("unscored",)},
    "best_of_n": {"ties": ("first",), "nan_rewards": ("unscored",)},
}


def preference_loss(
    *, policy: Array, reference: Array | None, mask: Array, loss: str, beta: float, **constants: Any
) -> dict[str, Any]:
    """DPO's loss of pairs that come chosen first, in one part, and its gradient."""
    if loss not in LOSSES:
        raise NotImplementedError(f"loss {loss!r}; this trainer has {', '.join(LOSSES)}")
    if np.asarray(policy).dtype == np.float64:
        raise NotImplementedError("policy in float64; the trainer's losses are float32")
    names = {"label_smoothing": "label_smoothing", "lengths": "ipo_lengths"}
    given = {names.get(name, name): value for name, value in constants.items() if value is not None}
    settings = {"loss": LOSSES[loss], "beta": beta, "reference_free": reference is None, **given}
    objective = registry.create("dpo", settings)
    rows, width = np.shape(policy)
    marks = np.ascontiguousarray(mask, np.bool_)
    groups = np.arange(rows) // 2
    whole = protocol.step_totals(marks.sum(axis=1), groups, micro_batches=1, max_length=width)
    signs = mx.array(np.tile(np.array([1.0, -1.0], np.float32), rows // 2))
    base = None if reference is None else mx.array(np.ascontiguousarray(reference, np.float32))

    def total(x: mx.array) -> mx.array:
        part = protocol.MicroBatch(x, mx.array(marks), signs, groups, reference=base)
        return objective.loss(part, whole).value

    value, gradient = mx.value_and_grad(total)(mx.array(np.ascontiguousarray(policy, np.float32)))
    return {"loss": float(value), "gradient": np.array(gradient)}


def _of(scores: Array, group_size: int) -> protocol.Rewards:
    values = np.asarray(scores, np.float64)[:, None]
    return protocol.Rewards(values, np.ones(1), group_size, np.ones(len(values), np.int64))


def prefer(*, scores: Array) -> dict[str, Any]:
    """Online DPO's advantages: +1 and -1 of each two completions."""
    return {"signs": registry.create("online_dpo", {}).advantages(_of(scores, 2)).astype(np.float64)}


def best_of_n(*, scores: Array, group_size: int) -> dict[str, Any]:
    """The rows that Best-of-N trains on."""
    return {"rows": np.flatnonzero(registry.create("best_of_n", {}).advantages(_of(scores, group_size)))}


def winner_loss(*, policy: Array, mask: Array, scores: Array, group_size: int, parts: Sequence[int]) -> dict[str, Any]:
    """Best-of-N's loss of a step in parts, and its gradient."""
    objective = registry.create("best_of_n", {})
    advantages = objective.advantages(_of(scores, group_size))
    marks = np.ascontiguousarray(mask, np.bool_)
    groups = np.arange(len(marks)) // group_size
    whole = protocol.step_totals(marks.sum(axis=1), groups, micro_batches=len(parts), max_length=marks.shape[1])
    total, gradients, ends = 0.0, [], np.cumsum(parts)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        part = partial(
            protocol.MicroBatch,
            mask=mx.array(marks[start:end]),
            advantages=mx.array(advantages[start:end]),
            groups=groups[start:end],
        )

        def loss(x: mx.array, part: Callable[..., protocol.MicroBatch] = part) -> mx.array:
            return objective.loss(part(x), whole).value

        value, gradient = mx.value_and_grad(loss)(mx.array(np.ascontiguousarray(policy[start:end], np.float32)))
        total += float(value)
        gradients.append(np.array(gradient))
    return {"loss": total, "gradient": np.concatenate(gradients)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "preference_loss": preference_loss,
    "prefer": prefer,
    "best_of_n": best_of_n,
    "winner_loss": winner_loss,
}
