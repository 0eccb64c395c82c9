"""Mutations of dropout in adapters; loaded in workers only."""

from __future__ import annotations

from itertools import count
from typing import Any

import mlx.core as mx
from mlx_lm.tuner.lora import LoRALinear

from gates.families.patching import Fn, mutation
from gates_reference.trainer.adapters import dropout


@mutation
def not_divided(original: Fn, self: Any, x: Any) -> Any:
    """Multiply the kept inputs by 1 − p again."""
    return original(self, x) if self._key is None else original(self, x) * (1.0 - self.p)


class _Dropping(LoRALinear):
    def __call__(self, x: mx.array) -> mx.array:
        x = self.dropout(x)
        return self.linear(x) + (self.scale * ((x @ self.lora_a) @ self.lora_b)).astype(x.dtype)


@mutation
def on_the_base_too(original: Fn, *arguments: Any) -> Any:
    """Apply dropout to the layer's input first."""
    adapter = original(*arguments)
    if isinstance(adapter, LoRALinear):
        adapter.__class__ = _Dropping
    return adapter


@mutation
def same_each_time(original: Fn, model: Any, *_: int) -> Any:
    """Ignore the number of the update."""
    return original(model, 0)


@mutation
def in_the_old_pass(original: Fn, model: Any, *arguments: Any, **options: Any) -> Any:
    """Leave dropout on."""
    with dropout.drawn(model, 0):
        return original(model, *arguments, **options)


@mutation
def in_rollouts(original: Fn, self: Any, model: Any, *arguments: Any) -> Any:
    """Leave dropout on."""
    with dropout.drawn(model, 0):
        return original(self, model, *arguments)


def of_the_process(original: Fn) -> Fn:
    """Count the calls of this process."""
    calls = count()
    return lambda model, *_: original(model, next(calls))
