"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

Fn = Callable[..., Any]


def forward_outside(original: Fn) -> Fn:
    """Run the forward pass before value_and_grad: the loss is a constant there, its gradient zero."""

    def mistaken(model: Any, loss: Any) -> Any:
        value = mx.stop_gradient(loss())
        _, gradient = original(model, lambda: value + 0.0)
        return value, tree_map(mx.zeros_like, gradient)

    return mistaken


def everything_trains(original: Fn) -> Fn:
    """Unfreeze the norms of the base besides the adapters."""

    def mistaken(model: Any) -> None:
        original(model)
        for layer in model.layers:
            layer.input_layernorm.unfreeze()

    return mistaken


def adapters_stay_on(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole context
    """Take the reference pass with the adapters on."""

    @contextlib.contextmanager
    def mistaken(model: Any) -> Iterator[None]:
        del model
        yield

    return mistaken
