"""A counterexample as one file: the safetensors format, written and read without a framework, and without trust.

A safetensors file is the header's length (8 bytes, little-endian), a JSON header that gives each tensor's dtype, shape
and place, then the bytes. The header's `__metadata__` holds what is no array, as JSON text under the key `gates`.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from gates.model import Array, ConfigurationError, Recipe
from gates.shrink.nesting import RECIPE

FORMAT = 2
OLDER = {1: {"unit": "numbers", "cut": {}}}  # what files of an earlier format mean by what they leave out
HEADER_LIMIT = 1 << 20  # bytes of JSON
FILE_LIMIT = 1 << 30  # bytes: a minimised input is far smaller, and one that is not still fits
LENGTH = struct.Struct("<Q")
DTYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "|u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "|b1",
}
NAMES = {value: key for key, value in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Inputs on which a gate fails for a subject, and where they come from.

    `inputs` are those of the case, made smaller; `cut` is what each rollout is cut to beside them. The sizes before and
    after are in `unit`: numbers of the arrays, or tokens where a model runs.
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


def write(path: Path, found: Counterexample) -> None:
    """Write the file whole or not at all."""
    tensors: dict[str, Array] = {}
    values = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "inputs"}
    body = {"format": FORMAT, **values, "inputs": _lower(dict(found.inputs), "", tensors)}
    header: dict[str, Any] = {"__metadata__": {"gates": json.dumps(body, allow_nan=False, ensure_ascii=False)}}
    start = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": NAMES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [start, start + array.nbytes],
        }
        start += array.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the format wants tensors aligned
    data = LENGTH.pack(len(text)) + text + b"".join(array.tobytes() for array in tensors.values())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def read(path: Path) -> Counterexample:
    """Read a file that anybody may have written: every size is checked before it is believed.

    Raises:
        ConfigurationError: with what the file should hold, where it does not.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would make us wait for ever, a device has no end
            raise ConfigurationError(f"cannot read {path}: is no regular file")
        if found.st_size > FILE_LIMIT:
            raise ConfigurationError(f"{path} has {found.st_size} bytes, must be at most {FILE_LIMIT}")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    try:
        return _parse(memoryview(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise ConfigurationError(f"{path} is no counterexample of Gates: {error}") from None


def _parse(data: memoryview) -> Counterexample:
    if len(data) < LENGTH.size:
        raise ValueError("it has no header")
    (length,) = LENGTH.unpack(data[: LENGTH.size])
    if length > min(HEADER_LIMIT, len(data) - LENGTH.size):
        raise ValueError(f"its header claims {length} bytes, the file has {len(data)}, and {HEADER_LIMIT} are the most")
    header = json.loads(bytes(data[LENGTH.size : LENGTH.size + length]))
    body = json.loads(header.pop("__metadata__")["gates"])
    if body.get("format") in OLDER:
        body = {**OLDER[body["format"]], **body}
    elif body.get("format") != FORMAT:
        raise ValueError(f"its format is {body.get('format')!r}, must be {FORMAT}: made by another version of Gates")
    payload = data[LENGTH.size + length :]
    tensors = {name: _tensor(name, entry, payload) for name, entry in header.items()}
    wanted = {f.name: f.type for f in fields(Counterexample)}
    for name, kind in wanted.items():
        if name not in body:
            raise ValueError(f"`{name}` is missing")
        if kind in CHECKED and type(body[name]) is not CHECKED[kind]:
            raise ValueError(f"`{name}` is a {type(body[name]).__name__}, must be {kind}")
    inputs = _raise(body["inputs"], tensors)
    if not isinstance(inputs, dict):
        raise ValueError("`inputs` must be an object")  # noqa: TRY004  every fault of a file is one kind of error
    if not all(type(value) in {int, str} for value in body["cut"].values()):
        raise ValueError("`cut` must hold integers and text")
    values: dict[str, Any] = {name: inputs if name == "inputs" else body[name] for name in wanted}
    return Counterexample(**values)


CHECKED: dict[Any, type] = {"str": str, "int": int, "bool": bool}


def _tensor(name: str, entry: Mapping[str, Any], payload: memoryview) -> Array:
    dtype, shape, (start, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, start, end)):
        raise ValueError(f"shape and place of `{name}` must be integers that are not negative")
    if end > len(payload) or end - start != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"`{name}` of {dtype} {shape} does not fit bytes {start} to {end} of {len(payload)}")
    return np.frombuffer(payload[start:end], dtype).reshape(shape).copy()


def _lower(value: Any, name: str, tensors: dict[str, Array]) -> Any:
    if isinstance(value, Recipe):
        return {RECIPE: value.kind, "spec": _lower(dict(value.spec), name, tensors)}
    if isinstance(value, dict):
        return {key: _lower(item, f"{name}.{key}" if name else key, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lower(item, f"{name}.{index}", tensors) for index, item in enumerate(value)]
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        tensors[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        if tensors[name].dtype.str not in NAMES:
            raise ValueError(f"`{name}` has dtype {array.dtype}, which no safetensors file holds")
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


def summary(found: Counterexample) -> dict[str, Any]:
    """Return everything but the arrays, for a line of JSON."""
    return {key: value for key, value in asdict(found).items() if key != "inputs"}
