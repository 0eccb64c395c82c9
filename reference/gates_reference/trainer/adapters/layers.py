"""mlx-lm's adapter layers around the layers of a base: create one, list its parameters, return the layer inside."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear
from mlx_lm.tuner.lora import LoRAEmbedding, LoRALinear, LoRASwitchLinear

from gates_reference import tiny
from gates_reference.trainer.adapters import dropout
from gates_reference.trainer.adapters.settings import Settings

LINEAR: Final = (nn.Linear, nn.QuantizedLinear)
SWITCH: Final = (SwitchLinear, QuantizedSwitchLinear)
EMBEDDING: Final = (nn.Embedding, nn.QuantizedEmbedding)
LEAVES: Final = ("lora_a", "lora_b", "m")
"""The parameters of an adapter: A, B, and DoRA's magnitudes."""
_INNER: Final = ("linear", "embedding")


def is_adapter(module: Any) -> bool:
    """Return whether a module is an adapter of any type, including those loaded by mlx-lm."""
    return "lora_a" in module


def inner_name(adapter: Any) -> str:
    """Return the attribute that holds the base's layer.

    Raises:
        TypeError: the attribute has no known name, so this adapter could not be switched off.
    """
    for name in _INNER:
        if name in adapter:
            return name
    raise TypeError(
        f"{type(adapter).__name__} is an adapter whose base layer is none of {_INNER}; it cannot be taken off"
    )


def inner(adapter: Any) -> Any:
    """Return the base's own layer object."""
    return adapter[inner_name(adapter)]


def leaves(adapter: Any) -> list[str]:
    """Return the names of the adapter's own parameters."""
    return [name for name in LEAVES if name in adapter]


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every adapter with its path from the model."""
    yield from ((name, module) for name, module in model.named_modules() if is_adapter(module))


def _width(layer: Any) -> int:
    """Return the last dimension of a layer's weight, unpacked if it is quantised."""
    last = int(layer.weight.shape[-1])
    return last * 32 // int(layer.bits) if hasattr(layer, "bits") else last


def _dtype(layer: Any) -> mx.Dtype:
    """Return float32 for every base, as in mlx-lm, but float64 for a float64 base.

    Values of bfloat16 near 0.03 are 1e-4 apart, so updates with a learning rate of 1e-6 would be rounded away.
    """
    return mx.float64 if layer.weight.dtype == mx.float64 else mx.float32


def _lora_linear(layer: Any, settings: Settings) -> Any:
    rows, inputs = layer.weight.shape[0], _width(layer)
    adapter = LoRALinear(inputs, rows, r=settings.rank, scale=settings.scale)
    adapter.linear = layer
    return adapter


def _dora_linear(layer: Any, settings: Settings) -> Any:
    rows, inputs = layer.weight.shape[0], _width(layer)
    adapter = DoRALinear(inputs, rows, r=settings.rank, scale=settings.scale)
    adapter.set_linear(layer)
    return adapter


def _lora_switch(layer: Any, settings: Settings) -> Any:
    return LoRASwitchLinear.from_base(layer, r=settings.rank, scale=settings.scale)


def _lora_embedding(layer: Any, settings: Settings) -> Any:
    adapter = LoRAEmbedding(layer.weight.shape[0], _width(layer), r=settings.rank, scale=settings.scale)
    adapter.embedding = layer
    return adapter


def _dora_embedding(layer: Any, settings: Settings) -> Any:
    return DoRAEmbedding.from_base(layer, r=settings.rank, scale=settings.scale)


_MAKERS: Final[tuple[tuple[str, tuple[type, ...], Callable[[Any, Settings], Any]], ...]] = (
    ("lora", LINEAR, _lora_linear),
    ("lora", SWITCH, _lora_switch),
    ("lora", EMBEDDING, _lora_embedding),
    ("dora", LINEAR, _dora_linear),
    ("dora", (nn.Embedding,), _dora_embedding),
)


def wrap(name: str, layer: Any, settings: Settings, words: Callable[[int], np.ndarray]) -> Any:
    """Put an adapter around a layer, with A uniform in +-1/sqrt(inputs), the rest by the settings, drawn from `words`.

    Raises:
        NotImplementedError: mlx-lm has no adapter of this type for the layer.
    """
    makers = [make for kind, types, make in _MAKERS if kind == settings.kind and isinstance(layer, types)]
    if not makers or hasattr(layer, "to_lora"):
        raise NotImplementedError(
            f"there is no {settings.kind} for {name}, a {type(layer).__name__}: "
            "name other targets, or choose kind 'lora', which has linear layers, experts and embeddings"
        )
    adapter = makers[0](layer, settings)
    if settings.dropout and not isinstance(layer, EMBEDDING):
        adapter.dropout = dropout.Dropout(settings.dropout)
    inputs = layer.weight.shape[0] if isinstance(layer, EMBEDDING) else _width(layer)
    a = tiny.uniform(words, adapter.lora_a.shape) / np.float32(np.sqrt(inputs))
    b = tiny.uniform(words, adapter.lora_b.shape) * np.float32(np.sqrt(3.0) * settings.b_std)
    adapter.lora_a, adapter.lora_b = (mx.array(x).astype(_dtype(layer)) for x in (a, b))
    if "m" in adapter and settings.m_std:
        adapter.m = adapter.m * mx.array(
            1 + tiny.uniform(words, adapter.m.shape) * np.float32(np.sqrt(3.0) * settings.m_std)
        )
    return adapter
