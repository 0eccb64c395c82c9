"""Read safetensors files into float64, and dequantise MLX's affine format."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import safetensors

from gates.errors import ConfigurationError
from gates.replay.forward.arrays import Array
from gates.replay.forward.errors import UnsupportedError

FLOATS: Final = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
WORDS: Final = {"U32": np.uint32, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
BITS: Final = (2, 4, 8)
"""Widths that divide a word of 32 bits."""


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of a safetensors file, such as a trainer's adapters, in float64.

    Raises:
        ConfigurationError: the file cannot be read.
        UnsupportedError: an array has a type that is not among the known ones.
    """
    return {name: np.asarray(values, np.float64) for name, values in _stored(path).items()}


def weights(folder: Path, config: Mapping[str, Any]) -> dict[str, Array]:
    """Return the weights of a model folder in float64, quantised ones dequantised as the configuration says.

    Raises:
        ConfigurationError: the folder has no weights, or a file cannot be read.
        UnsupportedError: the format of the weights is not among the known ones.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigurationError(f"{folder} has no *.safetensors, so it holds no model")
    stored = {name: values for file in files for name, values in _stored(file).items()}
    settings = config.get("quantization") or {}
    if not settings and config.get("quantization_config"):
        raise UnsupportedError(f"{folder}: config.json has quantization_config, the known format is MLX's quantization")
    return {
        name: _dequantised(name, stored, settings) if f"{_path(name)}.scales" in stored else values.astype(np.float64)
        for name, values in stored.items()
        if not (name.endswith((".scales", ".biases")) and f"{_path(name)}.scales" in stored)
    }


def _path(name: str) -> str:
    return name.rpartition(".")[0]


def _stored(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        arrays = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    return {name: _array(path, name, content) for name, content in arrays}


def _array(path: Path, name: str, content: Mapping[str, Any]) -> npt.NDArray[Any]:
    dtype, shape, data = content["dtype"], content["shape"], content["data"]
    if dtype == "BF16":  # the upper half of a float32
        upper = np.frombuffer(data, np.uint16).astype(np.uint32) << np.uint32(16)
        return upper.view(np.float32).reshape(shape)
    known = {**FLOATS, **WORDS}
    if dtype not in known:
        raise UnsupportedError(f"{path}: {name} has the type {dtype}, known are {[*known, 'BF16']}")
    return np.frombuffer(data, known[dtype]).reshape(shape)


def _dequantised(name: str, stored: Mapping[str, npt.NDArray[Any]], settings: Mapping[str, Any]) -> Array:
    """Return scale · q + bias for each group of the last axis, with q unpacked from words of 32 bits, lowest bits first."""
    path = _path(name)
    chosen = {"mode": "affine", **settings, **(settings.get(path) or {})}
    bits, size, mode = chosen.get("bits"), chosen.get("group_size"), chosen["mode"]
    if mode != "affine" or bits not in BITS or not size:
        raise UnsupportedError(
            f"{path} is quantised with mode {mode!r}, bits {bits} and group_size {size}, known are 'affine' with {BITS} bits"
        )
    words = stored[name]
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes = (words[..., None] >> shifts) & np.uint32(2**bits - 1)
    groups = codes.reshape(*words.shape[:-1], -1, size).astype(np.float64)
    scales, biases = (stored[f"{path}.{key}"].astype(np.float64)[..., None] for key in ("scales", "biases"))
    return np.asarray((groups * scales + biases).reshape(*words.shape[:-1], -1))


def configuration(folder: Path) -> dict[str, Any]:
    """Return the content of config.json.

    Raises:
        ConfigurationError: the file is missing or damaged.
    """
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds a {type(content).__name__}, expected an object")
    return content
