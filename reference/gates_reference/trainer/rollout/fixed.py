"""A decode step over key-value buffers of fixed size, compiled by MLX once per shape.

Every array that a step reads is an argument or a weight of the model. The weights are inputs of the compiled function
(`inputs=[model.state]`), so an optimizer's update takes effect in the next step. MLX bakes in everything that is not an array, such as
the modules, a LoRA scale, or dropout on or off; after such a change the step is compiled again (`signature`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

Arrays = list[mx.array]
Step = Callable[[mx.array, mx.array, mx.array, Arrays, Arrays], tuple[mx.array, Arrays, Arrays]]


class FixedKVCache:
    """One layer's keys and values (B, H, C, D) in buffers of fixed size; rows are left-padded.

    All rows write the next column at `position`; row b's text starts at column `padding[b]`.
    """

    def __init__(self, keys: mx.array, values: mx.array, position: mx.array, padding: mx.array) -> None:
        """Take buffers, the next position (1,) and the padding (B,)."""
        self.keys, self.values = keys, values
        self.position, self.padding = position, padding
        self.offset = position - padding  # the position within each row, for the rotary embedding

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write one column and return the whole buffers; the mask hides columns that are not written yet."""
        self.keys = mx.slice_update(self.keys, keys, self.position, axes=(2,))
        self.values = mx.slice_update(self.values, values, self.position, axes=(2,))
        return self.keys, self.values

    def make_mask(self, columns: int, **_: Any) -> mx.array:
        """Return the columns (B, 1, 1, C) that each row attends to.

        Raises:
            ValueError: more than one column at once.
        """
        if columns != 1:
            raise ValueError(f"a step has one column, found {columns}")
        return visible(self.keys.shape[2], self.position, self.padding)[:, None, None, :]


def visible(columns: int, position: mx.array, padding: mx.array) -> mx.array:
    """Return (B, C), true from a row's first token at `padding` (B,) to the one being written at `position` (1,)."""
    at = mx.arange(columns)
    return (at >= padding[:, None]) & (at <= position)


def step_of(model: Any) -> Step:
    """Return the step as a function of tokens (B, 1), position (1,), padding (B,) and every layer's buffers."""

    def step(
        tokens: mx.array, position: mx.array, padding: mx.array, keys: Arrays, values: Arrays
    ) -> tuple[mx.array, Arrays, Arrays]:
        cache = [FixedKVCache(k, v, position, padding) for k, v in zip(keys, values, strict=True)]
        logits = model(tokens, cache=cache)[:, -1, :]
        return logits, [layer.keys for layer in cache], [layer.values for layer in cache]

    return step


def compile_step(model: Any) -> Step:
    """Compile the step; it reads the model's weights at every call."""
    compiled: Step = mx.compile(step_of(model), inputs=[model.state])
    return compiled


Signature = tuple[Any, ...]


def signature(model: Any) -> Signature:
    """Return what MLX bakes into a compiled step: the identity of each module, and its numbers, flags and strings."""
    return tuple(
        (name, id(module), tuple((k, v) for k, v in vars(module).items() if isinstance(v, bool | int | float | str)))
        for name, module in model.named_modules()
    )


@dataclass(slots=True)
class _Kept:
    """The last model's compiled step; holding its modules ensures that no id in `signature` is reused."""

    signature: Signature
    modules: list[Any]
    step: Step


_KEPT: list[_Kept] = []


def compiled_step(model: Any) -> Step:
    """Return the model's compiled step; only the last one is kept, and it is compiled again if the signature changed."""
    now = signature(model)
    if not (_KEPT and _KEPT[0].signature == now):
        _KEPT[:] = [_Kept(now, [module for _, module in model.named_modules()], compile_step(model))]
    return _KEPT[0].step


def forget() -> None:
    """Drop the compiled step and the model that it holds."""
    _KEPT.clear()
