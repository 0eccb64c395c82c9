"""Gradient checkpointing per block: activations inside a block are discarded and computed again in the backward pass.

Chen et al. 2016, arXiv 1604.06174, with every block as a segment: it saves memory for all activations but those of one block and
between blocks, and costs a second forward pass. mlx-lm's `grad_checkpoint` changes the class of the blocks for all models; here only
the blocks of one model change, and `off` undoes it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import mlx.core as mx

_PLAIN: Final = "_plain_class"
"""The attribute in which a checkpointed class keeps the original class."""


def recomputed(block: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Checkpoint `forward` with the block's trainable parameters as inputs; captured parameters would get no gradient."""

    def inside(parameters: Any, *arguments: Any, **options: Any) -> Any:
        before = block.trainable_parameters()
        block.update(parameters)
        try:
            return forward(block, *arguments, **options)
        finally:
            block.update(before)  # the arrays of a trace must not stay in the model

    return mx.checkpoint(inside)


def _checkpointed(plain: type) -> type:
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if any(hasattr(x, "state") for x in (*arguments, *options.values())):  # a cache, of any of mlx-lm's types
            return plain.__call__(self, *arguments, **options)
        run = recomputed(self, plain.__call__)
        return run(self.trainable_parameters(), *arguments, **options)

    return type(plain.__name__, (plain,), {"__call__": call, _PLAIN: plain, "__module__": plain.__module__})


def is_on(model: Any) -> bool:
    """Return whether the model's blocks are checkpointed."""
    return any(hasattr(type(block), _PLAIN) for block in model.layers)


def on(model: Any) -> None:
    """Checkpoint every block from now on; forward passes with a cache, which have no gradient, do not change."""
    made: dict[type, type] = {}
    for block in model.layers:
        plain = type(block)
        if not hasattr(plain, _PLAIN):
            block.__class__ = made.setdefault(plain, _checkpointed(plain))


def off(model: Any) -> None:
    """Restore the original class of every block."""
    for block in model.layers:
        block.__class__ = getattr(type(block), _PLAIN, type(block))


@contextlib.contextmanager
def per_layer(model: Any) -> Iterator[None]:
    """Checkpoint inside the block of code, and restore the previous state afterwards."""
    before = is_on(model)
    on(model)
    try:
        yield
    finally:
        if not before:
            off(model)
