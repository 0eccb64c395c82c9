"""Load models by spec, once per process: a recipe of `gates_reference.tiny`, a folder, or a Hugging Face id in the cache."""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from gates_reference import tiny
from gates_reference.trainer import warmup
from gates_reference.trainer.adapters import layers


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model of mlx-lm, its tokenizer and where they came from."""

    model: Any
    tokenizer: Any
    path: str


def load(spec: Mapping[str, Any], progress: Callable[[int, float], None] | None = None) -> Loaded:
    """Load the model of a spec, `{"path": ...}` or a recipe of `gates_reference.tiny`; the same spec gives the same object.

    A recipe may have the key `warmup`, a table of `warmup.Recipe` without its model. If the warmed-up model must be built first,
    `progress` gets each step's number and loss.

    Raises:
        ValueError: the spec has `path` and other keys, or keys unknown to `gates_reference.tiny` or `warmup.Recipe`.
    """
    if progress is not None and "warmup" in spec:
        _warmed(spec, progress)
    return _load(json.dumps(dict(spec), sort_keys=True))


def exact(spec: Mapping[str, Any]) -> Loaded:
    """Load the model of a spec with every weight in float64; quantised weights are expanded in float64. CPU only."""
    return _exact(json.dumps(dict(spec), sort_keys=True))


def forget() -> None:
    """Drop every loaded model."""
    _load.cache_clear()
    _exact.cache_clear()


def _path(spec: Mapping[str, Any]) -> str:
    if "path" not in spec:
        return str(_warmed(spec) if "warmup" in spec else tiny.build(spec))
    if len(spec) > 1:
        raise ValueError(f"a model spec with 'path' has no other keys, found {sorted(spec)}")
    return _here(str(spec["path"]))


def _here(path: str) -> str:
    """Return the folder of a model: the path itself, or an id's folder in the Hugging Face cache, without network access.

    Given an id, mlx_lm.load would look for a newer revision and download it in the middle of a run.
    """
    if Path(path).expanduser().is_dir():
        return str(Path(path).expanduser())
    try:
        return str(mlx_lm_utils.hf_repo_to_path(path))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path!r} is neither a folder nor whole in the Hugging Face cache; nothing is downloaded during a run, fetch it "
            f"first with: hf download {path}"
        ) from error


def _warmed(spec: Mapping[str, Any], progress: Callable[[int, float], None] | None = None) -> Path:
    recipe = {key: value for key, value in spec.items() if key != "warmup"}
    known = {field.name for field in fields(warmup.Recipe)} - {"model"}
    if unknown := sorted(set(spec["warmup"]) - known):
        raise ValueError(f"unknown keys {unknown} in 'warmup', known are {sorted(known)}")
    return warmup.build(warmup.Recipe(model=recipe, **spec["warmup"]), progress)


@functools.lru_cache(maxsize=4)
def _load(key: str) -> Loaded:
    path = _path(json.loads(key))
    model, tokenizer = _read(path)
    model.freeze()
    return Loaded(model, tokenizer, path)


def _read(path: str) -> tuple[Any, Any]:
    model, tokenizer = mlx_lm.load(path, trust_remote_code=False)[:2]
    for module in model.modules():
        if not hasattr(module, "_no_grad"):  # mlx-lm's recurrent_gemma does not call the constructor of nn.Module
            nn.Module.__init__(module)
    return model, tokenizer


@functools.lru_cache(maxsize=2)
def _exact(key: str) -> Loaded:
    path = _path(json.loads(key))
    model, tokenizer = _read(path)
    with mx.stream(mx.cpu):
        model.update_modules(tree_unflatten([(name, _expand(m)) for name, m in model.named_modules() if quantised(m)]))
        model.update(tree_map(_double, model.parameters()))
        mx.eval(model.parameters())
    model.freeze()
    return Loaded(model, tokenizer, path)


def _double(x: mx.array) -> mx.array:
    return x.astype(mx.float64) if mx.issubdtype(x.dtype, mx.floating) else x


def quantised(module: Any) -> bool:
    """Return whether a module's weight is quantised."""
    return isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding | QuantizedSwitchLinear)


def _expand(module: Any) -> Any:
    """Return the dense float64 layer of a quantised one: code * scale + bias without a float32 rounding."""
    if getattr(module, "mode", "affine") != "affine" or "bias" in module:
        raise NotImplementedError(f"float64 of a {module.mode} layer with bias={'bias' in module}")
    ones, zeros = mx.ones_like(module.scales), mx.zeros_like(module.biases)
    codes = mx.dequantize(module.weight, ones, zeros, group_size=module.group_size, bits=module.bits)
    scales, biases = (mx.repeat(_double(x), module.group_size, axis=-1) for x in (module.scales, module.biases))
    weight = _double(codes) * scales + biases
    dense = _dense(module)
    dense.weight = weight
    return dense


def _dense(module: Any) -> Any:
    if isinstance(module, QuantizedSwitchLinear):
        return SwitchLinear(1, 1, 1, bias=False)
    return nn.Embedding(1, 1) if isinstance(module, nn.QuantizedEmbedding) else nn.Linear(1, 1, bias=False)


def base_parameters(model: Any) -> dict[str, mx.array]:
    """Return every parameter that is not an adapter's, by its name in the model without adapters."""
    flat = dict(tree_flatten(model.parameters()))
    for path, adapter in layers.named(model):
        for leaf in layers.leaves(adapter):
            del flat[f"{path}.{leaf}"]
        held = f"{path}.{layers.inner_name(adapter)}."
        for name in [name for name in flat if name.startswith(held)]:
            flat[f"{path}.{name[len(held) :]}"] = flat.pop(name)
    return flat


def digest(parameters: Mapping[str, mx.array]) -> str:
    """Return the sha256 of parameters: names, types, shapes and bits, in the order of the names."""
    hasher = hashlib.sha256()
    for name in sorted(parameters):
        x = parameters[name]
        hasher.update(f"{name}\0{x.dtype}\0{x.shape}\0".encode())
        hasher.update(bits(x))
    return hasher.hexdigest()


def bits(x: mx.array) -> bytes:
    """Return the bytes of an array of any type."""
    return np.array(x.reshape(-1).view(mx.uint8)).tobytes()
