"""The gradients of the MLX trainer's losses in everything that a loss should hold constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from gates_reference.trainer.algorithms import protocol, registry

Array = np.ndarray[Any, Any]

CONSTANTS = ("old", "reference", "sampling")


def loss_constants(
    *,
    policy: Array,
    old: Array | None,
    reference: Array,
    sampling: Array,
    advantages: Array,
    mask: Array,
    algorithm: str,
    **settings: Any,
) -> dict[str, Any]:
    """A step's loss in one part, its gradient (B, T) in the policy and in each constant that is given; zeros for one that is not."""
    objective = registry.create(algorithm, {name: value for name, value in settings.items() if value is not None})
    marks = np.ascontiguousarray(mask, np.bool_)
    groups = np.zeros(len(marks), np.int64)
    whole = protocol.step_totals(marks.sum(axis=1), groups, micro_batches=1, max_length=marks.shape[1])
    given = {"policy": policy, "old": old, "reference": reference, "sampling": sampling}
    names = [name for name, x in given.items() if x is not None]
    gains = mx.array(np.ascontiguousarray(advantages, np.float32))

    def loss(*arrays: mx.array) -> mx.array:
        part = dict(zip(names, arrays, strict=True))
        return objective.loss(
            protocol.MicroBatch(mask=mx.array(marks), groups=groups, advantages=gains, **part), whole
        ).value

    variables = [mx.array(np.ascontiguousarray(given[name], np.float32)) for name in names]
    value, slopes = mx.value_and_grad(loss, argnums=tuple(range(len(names))))(*variables)
    found = {name: np.array(slope) for name, slope in zip(names, slopes, strict=True)}
    held = {f"{name}_gradient": found.get(name, np.zeros(marks.shape, np.float32)) for name in CONSTANTS}
    return {"loss": float(value), "gradient": found["policy"], **held}


OPS: dict[str, Callable[..., dict[str, Any]]] = {"loss_constants": loss_constants}
