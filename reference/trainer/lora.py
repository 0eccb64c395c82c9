"""LoRA adapters (Hu et al. 2021, arXiv 2106.09685) on a frozen base: put on, switched off and taken off the same model.

The layer is mlx-lm's: y + scale * (x A) B. Taking an adapter off restores the very layer objects of the base.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_unflatten
from mlx_lm.tuner.lora import LoRALinear

from reference import tiny

DEFAULTS: Final[Mapping[str, int | float]] = {"rank": 4, "scale": 2.0, "seed": 0, "b_std": 0.0}
"""An adapter's spec. `b_std` is the standard deviation of B; 0 is the usual start, where the adapter changes nothing."""


def complete(spec: Mapping[str, Any]) -> dict[str, int | float]:
    """The adapter spec with every default filled in.

    Raises:
        ValueError: a key is unknown or the rank below 1.
    """
    unknown = sorted(set(spec) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown keys {unknown} in the adapter spec, known are {sorted(DEFAULTS)}")
    full = {key: type(default)(spec.get(key, default)) for key, default in DEFAULTS.items()}
    if full["rank"] < 1:
        raise ValueError(f"rank is {full['rank']}, must be at least 1")
    return full


def _replace(model: Any, new: Mapping[str, Any]) -> None:
    for number, layer in enumerate(model.layers):
        prefix = f"{number}."
        found = [(name[len(prefix) :], module) for name, module in new.items() if name.startswith(prefix)]
        if found:
            layer.update_modules(tree_unflatten(found))


def _modules(model: Any, kinds: tuple[type, ...]) -> dict[str, Any]:
    """The modules of these kinds in the model's layers, by "layer.path", in the order of the names."""
    inside_adapter = {id(m.linear) for layer in model.layers for m in layer.modules() if isinstance(m, LoRALinear)}
    return {
        f"{number}.{name}": module
        for number, layer in enumerate(model.layers)
        for name, module in sorted(layer.named_modules())
        if isinstance(module, kinds) and id(module) not in inside_adapter
    }


def adapters(model: Any) -> dict[str, LoRALinear]:
    """The adapters on the model, by "layer.path"."""
    return _modules(model, (LoRALinear,))


def attach(model: Any, spec: Mapping[str, Any]) -> None:
    """Put an adapter on every linear layer of every block; its values are a pure function of the spec.

    A is uniform in +-1/sqrt(inputs); B is uniform with standard deviation `b_std`.
    """
    full = complete(spec)
    words = np.random.Philox(key=int(full["seed"])).random_raw
    new: dict[str, LoRALinear] = {}
    for name, linear in _modules(model, (nn.Linear, nn.QuantizedLinear)).items():
        layer = LoRALinear.from_base(linear, r=int(full["rank"]), scale=full["scale"])
        a = tiny.uniform(words, layer.lora_a.shape) / np.float32(np.sqrt(layer.lora_a.shape[0]))
        b = tiny.uniform(words, layer.lora_b.shape) * np.float32(np.sqrt(3.0) * full["b_std"])
        kind = linear.scales.dtype if isinstance(linear, nn.QuantizedLinear) else linear.weight.dtype
        layer.lora_a, layer.lora_b = mx.array(a).astype(kind), mx.array(b).astype(kind)
        new[name] = layer
    _replace(model, new)


def detach(model: Any) -> None:
    """Take every adapter off and restore the layers of the base."""
    _replace(model, {name: layer.linear for name, layer in adapters(model).items()})


@contextlib.contextmanager
def attached(model: Any, spec: Mapping[str, Any] | None) -> Iterator[None]:
    """The model with a fresh adapter inside the block (none if `spec` is None), the untouched base afterwards."""
    detach(model)
    try:
        if spec is not None:
            attach(model, spec)
        yield
    finally:
        detach(model)


@contextlib.contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """The base model inside the block, by the base's own layers; the same adapters afterwards."""
    on = adapters(model)
    _replace(model, {name: layer.linear for name, layer in on.items()})
    try:
        yield
    finally:
        _replace(model, on)


def freeze(model: Any) -> None:
    """Make `lora_a` and `lora_b` of every adapter trainable, and nothing else."""
    model.freeze()
    for layer in adapters(model).values():
        layer.unfreeze(keys=["lora_a", "lora_b"], recurse=False)
