"""Encode and decode the frames of the protocol (docs/protocol.md); standard library and NumPy only.

The judge imports this file, and the worker loads it by path in the subject's interpreter. A frame is the magic, the
header's length, a JSON header, then raw little-endian C-order buffers. Neither side executes what the other sends.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"GATE"
PREFIX = struct.Struct("<4sI")
HEADER_LIMIT = 1 << 20  # bytes of JSON
PAYLOAD_LIMIT = 4 << 30  # bytes of buffers: more than any case needs
ERROR_LIMIT = 2000  # characters of an error message that cross the wire
PARTS = 512  # buffers of one writev; POSIX allows a system to limit them to 1024
BATCH = 1 << 26  # bytes of one writev; macOS refuses more than 2 GiB
DTYPES = frozenset(("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", "bfloat16"))


class FrameError(ValueError):
    """The bytes on the pipe are not a frame."""


def encode(tree: Any) -> list[bytes | memoryview]:
    """Return a tree of wire values as the parts of one frame."""
    arrays: list[np.ndarray[Any, Any]] = []
    body = _lower(tree, arrays)
    buffers = [{"dtype": _tag(array), "shape": list(array.shape)} for array in arrays]
    header = json.dumps({"body": body, "buffers": buffers}, allow_nan=False).encode()
    if len(header) > HEADER_LIMIT:
        raise FrameError(f"header has {len(header)} bytes, must be at most {HEADER_LIMIT}; send long lists as arrays")
    if (size := sum(array.nbytes for array in arrays)) > PAYLOAD_LIMIT:
        raise FrameError(f"arrays have {size} bytes, must be at most {PAYLOAD_LIMIT}")
    return [PREFIX.pack(MAGIC, len(header)) + header, *(_raw(array) for array in arrays)]


def header_size(prefix: bytes) -> int:
    """Return the header's length from the first bytes of a frame."""
    magic, size = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise FrameError(f"frame starts with {magic!r}, must start with {MAGIC!r}")
    if size > HEADER_LIMIT:
        raise FrameError(f"header has {size} bytes, must be at most {HEADER_LIMIT}")
    return int(size)


def parse_header(data: bytes | bytearray) -> tuple[dict[str, Any], list[int]]:
    """Return the header and the byte size of each buffer; call before allocating any buffer."""
    try:
        header = json.loads(data)
        buffers = header["buffers"]
        sizes = [_buffer_size(b["dtype"], b["shape"]) for b in buffers]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameError(f"header is not what a frame has: {error}") from None
    if sum(sizes) > PAYLOAD_LIMIT:
        raise FrameError(f"buffers have {sum(sizes)} bytes, must be at most {PAYLOAD_LIMIT}")
    return header, sizes


def decode(header: Mapping[str, Any], payload: memoryview) -> Any:
    """Return the tree of wire values of one frame; arrays are views of `payload`."""
    arrays, start = [], 0
    for buffer in header["buffers"]:
        size = _buffer_size(buffer["dtype"], buffer["shape"])
        arrays.append(_array(payload[start : start + size], buffer["dtype"], tuple(buffer["shape"])))
        start += size
    return _raise(header["body"], arrays)


def batch(parts: list[memoryview]) -> list[memoryview]:
    """Return the first parts of a frame, up to the limits of one writev."""
    taken: list[memoryview] = []
    room = BATCH
    for part in parts[:PARTS]:
        taken.append(part[:room])
        room -= len(taken[-1])
        if not room:
            break
    return taken


def drop(parts: list[memoryview], count: int) -> None:
    """Remove the first `count` bytes, already written, from the parts of a frame."""
    while parts and count >= len(parts[0]):
        count -= len(parts.pop(0))
    if count:
        parts[0] = parts[0][count:]


def _buffer_size(dtype: str, shape: list[int]) -> int:
    if dtype not in DTYPES:
        raise FrameError(f"dtype {dtype!r} does not cross the wire")
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise FrameError(f"shape {shape!r} must be of integers that are not negative")
    return math.prod(shape) * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def _tag(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.name == "bfloat16":
        return "bfloat16"
    tag = str(array.dtype.newbyteorder("<").str)
    if tag not in DTYPES:
        raise FrameError(f"an array of dtype {array.dtype} does not cross the wire; it must hold numbers or booleans")
    return tag


def _raw(array: np.ndarray[Any, Any]) -> memoryview:
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return memoryview(plain.reshape(-1).view(np.uint8).data)


def _array(data: memoryview, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype == "bfloat16":  # exact in float32: the upper half of its bits
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)


def _lower(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, dict):
        if bad := [key for key in value if not isinstance(key, str) or key.startswith("$")]:
            raise FrameError(f"keys {bad} do not cross the wire: they must be text that does not start with '$'")
        return {key: _lower(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lower(item, arrays) for item in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        arrays.append(np.asarray(value))
        return {"$array": len(arrays) - 1}
    raise FrameError(
        f"a {type(value).__name__} does not cross the wire; return NumPy arrays, numbers, text, lists or dicts of them"
    )


def _raise(body: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(body, dict):
        if "$array" in body:
            return arrays[body["$array"]]
        if "$float" in body:
            return float(body["$float"])
        return {key: _raise(item, arrays) for key, item in body.items()}
    if isinstance(body, list):
        return [_raise(item, arrays) for item in body]
    return body
