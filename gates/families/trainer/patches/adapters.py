"""Mutations of adapters and checkpointing; loaded in workers only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear
from mlx_lm.tuner.lora import LoRAEmbedding, LoRASwitchLinear

from gates.families.patching import Fn, mutation
from gates_reference.trainer import lora


def _without(kinds: tuple[type, ...]) -> Callable[[Fn], Fn]:
    def patch(original: Fn) -> Fn:
        def mistaken(model: Any) -> Any:
            return {name: adapter for name, adapter in original(model).items() if not isinstance(adapter, kinds)}

        return mistaken

    return patch


dora_stays_on = _without((DoRALinear, DoRAEmbedding))
experts_stay_on = _without((LoRASwitchLinear,))
embeddings_stay_on = _without((LoRAEmbedding, DoRAEmbedding))


def scaled_to_zero(original: Fn) -> Fn:  # noqa: ARG001  the mistake replaces the whole context
    """Switch adapters off by a scale of 0, which leaves DoRA's magnitudes on."""

    @contextlib.contextmanager
    def mistaken(model: Any) -> Iterator[None]:
        scales = [(adapter, adapter.scale) for adapter in lora.adapters(model).values()]
        for adapter, _ in scales:
            adapter.scale = 0.0
        try:
            yield
        finally:
            for adapter, scale in scales:
                adapter.scale = scale

    return mistaken


@mutation
def experts_frozen(original: Fn, model: Any) -> None:
    """Leave the experts' adapters frozen."""
    original(model)
    for adapter in lora.adapters(model).values():
        if isinstance(adapter, LoRASwitchLinear):
            adapter.freeze()


@mutation
def magnitudes_forgotten(original: Fn, adapter: Any) -> Any:
    """Unfreeze only A and B of an adapter."""
    return [name for name in original(adapter) if name != "m"]


@mutation
def attention_and_mlp_only(original: Fn, *arguments: Any) -> Any:
    """Search only for the target modules of dense models."""
    return {name: layer for name, layer in original(*arguments).items() if ".linear_attn." not in name}


@mutation
def captured_parameters(_original: Fn, block: Any, forward: Fn) -> Fn:
    """Checkpoint a block's call without its parameters among the inputs."""
    run = mx.checkpoint(lambda *arguments, **options: forward(block, *arguments, **options))
    return lambda _, *arguments, **options: run(*arguments, **options)
