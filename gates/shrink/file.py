"""Read and write counterexamples as safetensors files: arrays are tensors, all else is JSON in the metadata.

The safetensors library checks header, sizes and offsets of a file, and executes nothing. This module checks the JSON.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gates.errors import unreadable
from gates.model import Array, ConfigurationError, Recipe
from gates.results.atomic_write import write_whole
from gates.shrink.flatten import RECIPE

FORMAT = 2
OLDER = {1: {"unit": "numbers", "cut": {}}}  # fields that files of an earlier format lack
METADATA = "gates"  # the key of the JSON text
FILE_LIMIT = 1 << 30  # bytes: enough for inputs that were not shrunk


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Inputs on which a subject fails a gate, and their origin.

    `inputs` are those of the case, shrunk; `cut` limits each rollout. Sizes before and after are in `unit`: array elements
    ("numbers"), texts, or tokens if a model runs.
    """

    gate: str
    case: str
    seed: int
    subject: str
    entry: str
    kind: str
    reason: str
    words: str
    elements_before: int
    elements_after: int
    unit: str
    finished: bool
    judged_beside: str | None
    quick: bool
    tool: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    cut: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def models(self) -> bool:
        """Whether a model runs on these inputs."""
        return any(isinstance(value, Recipe) and value.kind == "model" for value in self.inputs.values())


def write(path: Path, counterexample: Counterexample) -> None:
    """Write the file completely or not at all.

    Raises:
        ValueError: an input has a type that the format does not support.
        ConfigurationError: the path cannot be written.
        FaultError: the machine fails, such as on a full disk.
    """
    tensors: dict[str, Array] = {}
    values = {f.name: getattr(counterexample, f.name) for f in fields(counterexample) if f.name != "inputs"}
    body = {"format": FORMAT, **values, "inputs": _lower(dict(counterexample.inputs), "", tensors)}
    write_whole(path, save(tensors, {METADATA: json.dumps(body, allow_nan=False, ensure_ascii=False)}))


def read(path: Path) -> Counterexample:
    """Read a file from an untrusted source.

    Raises:
        ConfigurationError: the file is missing, too large or not a counterexample.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe could block for ever, a device never ends
            raise ConfigurationError(f"cannot read {path}: is no regular file; write a pipe to a file first")
        if status.st_size > FILE_LIMIT:
            raise ConfigurationError(f"{path} has {status.st_size} bytes, must be at most {FILE_LIMIT}")
        with safe_open(path, framework="np") as file:
            body = json.loads((file.metadata() or {})[METADATA])
            tensors = {name: _checked(name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118  not a mapping
        return _parse(body, tensors)
    except OSError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no counterexample of Gates: {error}") from None


CHECKED: dict[Any, type] = {"str": str, "int": int, "bool": bool}


def _parse(body: Any, tensors: Mapping[str, Array]) -> Counterexample:
    if body.get("format") in OLDER:
        body = {**OLDER[body["format"]], **body}
    elif body.get("format") != FORMAT:
        raise ValueError(f"its format is {body.get('format')!r}, must be {FORMAT}: made by another version of Gates")
    wanted = {f.name: f.type for f in fields(Counterexample)}
    for name, annotation in wanted.items():
        if name not in body:
            raise ValueError(f"`{name}` is missing")
        if annotation in CHECKED and type(body[name]) is not CHECKED[annotation]:
            raise ValueError(f"`{name}` is a {type(body[name]).__name__}, must be {annotation}")
    inputs = _raise(body["inputs"], tensors)
    if not isinstance(inputs, dict):
        raise ValueError("`inputs` must be an object")  # noqa: TRY004  every defect of a file is a ValueError
    if not all(type(value) in {int, str} for value in body["cut"].values()):
        raise ValueError("`cut` must hold integers and text")
    values: dict[str, Any] = {name: inputs if name == "inputs" else body[name] for name in wanted}
    return Counterexample(**values)


def _checked(name: str, array: Array) -> Array:
    if array.dtype.name != "bfloat16" and (array.dtype.kind not in "fiub" or array.dtype.itemsize > 8):
        raise ValueError(
            f"`{name}` has dtype {array.dtype}; a counterexample holds booleans and numbers of 8 to 64 bits"
        )
    return array


def _lower(value: Any, name: str, tensors: dict[str, Array]) -> Any:
    if isinstance(value, Recipe):
        return {RECIPE: value.kind, "spec": _lower(dict(value.spec), name, tensors)}
    if isinstance(value, dict):
        return {key: _lower(item, f"{name}.{key}" if name else key, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lower(item, f"{name}.{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, np.ndarray | np.generic):
        array = _checked(name, np.asarray(value))
        tensors[name] = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray gives a scalar an axis
        return {"$array": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"`{name}` is a {type(value).__name__}, which no counterexample holds")


def _raise(body: Any, tensors: Mapping[str, Array]) -> Any:
    if isinstance(body, dict):
        if "$array" in body:
            return tensors[body["$array"]]
        if "$float" in body:
            return float(body["$float"])
        if RECIPE in body:
            return Recipe(body[RECIPE], dict(body["spec"]))
        return {key: _raise(item, tensors) for key, item in body.items()}
    if isinstance(body, list):
        return [_raise(item, tensors) for item in body]
    return body


def summary(counterexample: Counterexample) -> dict[str, Any]:
    """Return every field except `inputs`, for a line of JSON."""
    return {key: value for key, value in asdict(counterexample).items() if key != "inputs"}
