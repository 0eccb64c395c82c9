"""Call a model in two steps: the body, from ids to hidden states, and the head, from hidden states to logits.

mlx-lm's models do both in one call. That call is used here for both steps, so that tied heads, soft caps and scales of the logits
need no special case. Only the body, the module that holds the blocks, is replaced during a call: first by a wrapper that keeps its
output, then by a function that returns given hidden states.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten


class _Stand:
    """A stand-in for the body: calls go to `call`, attributes to the body."""

    def __init__(self, body: Any, call: Callable[..., Any]) -> None:
        self._body, self._call = body, call

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._call(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


def _place(model: Any) -> tuple[Any, str]:
    """Return the module that holds the body, and the body's name there.

    Raises:
        TypeError: no module holds the blocks, as in mlx-lm's models.
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
    """Put the model except dropout in training mode: on Metal, mlx-lm's linear attention has a gradient only there."""
    modules = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modules:
            module._set_training_mode(not isinstance(module, nn.Dropout))  # noqa: SLF001  `train` walks the tree each time
        yield
    finally:
        for module, before in modules:
            module._set_training_mode(before)  # noqa: SLF001  as above


def hidden(model: Any, ids: mx.array) -> mx.array:
    """Return the hidden states (B, L, D) before the head for ids (B, L), by one full forward pass without a cache."""
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
    """Apply the model's head to hidden states (..., L, D): logits (..., L, V)."""
    with _standing(model, lambda _: lambda *_, **__: states):
        return model(mx.zeros(states.shape[:-1], mx.int32))


def parameters(model: Any) -> Any:
    """Return the tree of the trainable parameters outside the blocks, which include those of the head."""
    inside = {id(x) for block in model.layers for _, x in tree_flatten(block.trainable_parameters())}
    outside = [(name, x) for name, x in tree_flatten(model.trainable_parameters()) if id(x) not in inside]
    return tree_unflatten(outside) if outside else {}
