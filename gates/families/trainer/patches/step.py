"""Mutations of a training step; loaded in workers only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from gates.families.patching import Fn, mutation


@mutation
def forward_outside(original: Fn, model: Any, loss: Any) -> Any:
    """Run the forward pass before value_and_grad, so that the gradient is zero."""
    value = mx.stop_gradient(loss())
    _, gradient = original(model, lambda: value + 0.0)
    return value, tree_map(mx.zeros_like, gradient)


@mutation
def everything_trains(original: Fn, model: Any) -> None:
    """Unfreeze the norms of the base model too."""
    original(model)
    for layer in model.layers:
        layer.input_layernorm.unfreeze()


def adapters_stay_on(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole context
    """Run the reference pass with the adapters on."""

    @contextlib.contextmanager
    def mistaken(model: Any) -> Iterator[None]:
        del model
        yield

    return mistaken
