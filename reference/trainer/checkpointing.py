"""Gradient checkpointing block by block: what happens inside a block is forgotten and computed again in the backward pass.

Chen et al. 2016, arXiv 1604.06174, with every block a segment: memory for one block's activations and the states between blocks, for a
second forward pass. Unlike mlx-lm's `grad_checkpoint`, which changes the class of a block for good, only the blocks of this model change,
and `off` undoes it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import mlx.core as mx

_PLAIN: Final = "_plain_class"
"""Where a checkpointed class keeps the class that it stands for."""


def recomputed(block: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` of a block with its trainable parameters as explicit inputs: what a checkpoint captures gets no gradient."""

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
    """Whether the model's blocks are checkpointed."""
    return any(hasattr(type(block), _PLAIN) for block in model.layers)


def on(model: Any) -> None:
    """Checkpoint every block from now on; a forward pass that fills a cache, which has no gradient, stays as it is."""
    made: dict[type, type] = {}
    for block in model.layers:
        plain = type(block)
        if not hasattr(plain, _PLAIN):
            block.__class__ = made.setdefault(plain, _checkpointed(plain))


def off(model: Any) -> None:
    """Give every block its own class back."""
    for block in model.layers:
        block.__class__ = getattr(type(block), _PLAIN, type(block))


@contextlib.contextmanager
def per_layer(model: Any) -> Iterator[None]:
    """Checkpointing inside the block of code, what there was before it afterwards."""
    before = is_on(model)
    on(model)
    try:
        yield
    finally:
        if not before:
            off(model)
