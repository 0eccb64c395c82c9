"""Shared by adapters of MLX libraries: arrays, value and gradient, and fake models with given log-probs.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from mlx import nn
from peer_timed import Timed

Array = np.ndarray[Any, Any]
VOCABULARY = 7  # vocabulary size of the fake models


def array(values: Any) -> Any:
    """Return a NumPy array as an MLX array in native byte order; other values unchanged."""
    if not isinstance(values, np.ndarray):
        return values
    return mx.array(values.astype(values.dtype.newbyteorder("="), order="C"))


def loss_and_gradient(function: Callable[[mx.array], mx.array], values: Array) -> dict[str, Any]:
    """Return a loss and MLX's gradient by `values` in their shape and dtype."""
    loss, gradient = mx.value_and_grad(function)(array(values))
    mx.eval(loss, gradient)
    return {"loss": loss.item(), "gradient": np.array(gradient)}


def evaluated(tree: Any) -> Any:
    """Evaluate an array or a tree of arrays and return it."""
    mx.eval(tree)
    return tree


def timed_loss(function: Callable[[mx.array], mx.array], values: Array, note: str) -> Timed:
    """Return a timed call of a loss with MLX's gradient by `values`, evaluated."""
    leaf = evaluated(array(values))
    names = {"evaluated": evaluated, "value_and_grad": mx.value_and_grad(function), "policy": leaf}
    return Timed(
        "evaluated(value_and_grad(policy))",
        names,
        lambda result: {"loss": result[0].item(), "gradient": np.array(result[1])},
        note,
    )


def only_float32(name: str, values: Array) -> None:
    """Refuse data of another dtype.

    Raises:
        NotImplementedError: the dtype is not float32.
    """
    if np.asarray(values).dtype != np.float32:
        raise NotImplementedError(f"this library computes in float32; `{name}` has dtype {np.asarray(values).dtype}")


def logits_that_hold(logprobs: mx.array, ids: mx.array, vocabulary: int = VOCABULARY) -> mx.array:
    """Return logits (..., V) whose log-softmax at the ids is `logprobs`, differentiable in them.

    The other tokens share the remaining probability, log((1 − p)/(V − 1)) each, so the logsumexp of a row is 0.
    """
    rest = mx.log(-mx.expm1(logprobs)) - float(np.log(vocabulary - 1))
    chosen = ids[..., None] == mx.arange(vocabulary)
    return mx.where(chosen, logprobs[..., None], rest[..., None])


def given_logprobs() -> Any:
    """Have MLX's cross entropy return the negative of its first argument, so that a fake model's "logits" are log-probs."""
    return patch.object(nn.losses, "cross_entropy", lambda logprobs, *_, **__: -logprobs)


class FakeModel(nn.Module):
    """A causal model that returns given logits (B, T, V) for any ids."""

    def __init__(self, logits: mx.array) -> None:
        super().__init__()
        self._logits = logits

    def __call__(self, *_: Any, **__: Any) -> mx.array:
        """Return the logits."""
        return self._logits
