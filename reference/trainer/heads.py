"""A model in two halves: the body, from ids to hidden states, and its own head, from hidden states to logits.

mlx-lm's models do both in one call. Here the call stays theirs, soft caps and scales of the logits included, and tied heads are no
special case: only the body, the part with the blocks, is replaced for the time of a call, once by itself with its output noted, once
by hidden states that are there already.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten


class _Stand:
    """Stands where the body stands: calls go to `call`, everything else is the body's."""

    def __init__(self, body: Any, call: Callable[..., Any]) -> None:
        self._body, self._call = body, call

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._call(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


def _place(model: Any) -> tuple[Any, str]:
    """The module that holds the body, and the name that it has there.

    Raises:
        TypeError: the blocks are not in a part of their own, as they are in mlx-lm's models.
    """
    first = model.layers[0]
    for _, owner in model.named_modules():
        for name, part in owner.items():
            if isinstance(part, nn.Module) and any(isinstance(x, list) and x and x[0] is first for x in part.values()):
                return owner, name
    raise TypeError(
        f"{type(model).__module__}.{type(model).__name__} has no body that could be called without its head"
    )


@contextlib.contextmanager
def _standing(model: Any, make: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    owner, name = _place(model)
    body = owner[name]
    owner[name] = _Stand(body, make(body))
    try:
        yield
    finally:
        owner[name] = body


@contextlib.contextmanager
def differentiable(model: Any) -> Iterator[None]:
    """The model in training mode, dropout excepted: mlx-lm's linear attention has a gradient only there (on Metal)."""
    modules = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modules:
            module._set_training_mode(not isinstance(module, nn.Dropout))  # noqa: SLF001  `train` walks the tree each time
        yield
    finally:
        for module, before in modules:
            module._set_training_mode(before)  # noqa: SLF001  as above


def hidden(model: Any, ids: mx.array) -> mx.array:
    """The hidden states (B, L, D) that the head gets for ids (B, L), by one full forward pass without a cache."""
    noted: list[mx.array] = []

    def make(body: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> mx.array:
            noted.append(body(*arguments, **options))
            return noted[-1][:, :1]  # the head's result is dropped, so MLX never computes it

        return call

    with _standing(model, make):
        model(ids)
    return noted[-1]


def logits(model: Any, states: mx.array) -> mx.array:
    """The model's own head on hidden states (..., L, D): logits (..., L, V)."""
    with _standing(model, lambda _: lambda *_, **__: states):
        return model(mx.zeros(states.shape[:-1], mx.int32))


def parameters(model: Any) -> Any:
    """The tree of the trainable parameters outside the blocks: all that a head can train."""
    inside = {id(x) for block in model.layers for _, x in tree_flatten(block.trainable_parameters())}
    outside = [(name, x) for name, x in tree_flatten(model.trainable_parameters()) if id(x) not in inside]
    return tree_unflatten(outside) if outside else {}
