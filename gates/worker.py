"""One subject in a process of its own (docs/protocol.md); standard library and NumPy only.

The judge runs this file by path with `python -I`, in the subject's interpreter, so that nothing of the judge's
environment shadows the subject's. A frame is the magic, the header's length, a JSON header, then raw little-endian
C-order buffers. Neither side runs what the other sends.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import importlib.util
import io
import json
import math
import os
import platform
import queue
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 10):  # noqa: UP036  a subject's interpreter may be older than the judge's
    sys.exit(f"this interpreter is Python {platform.python_version()}, must be 3.10 or newer")
try:
    import numpy as np
except ModuleNotFoundError:
    sys.exit(f"{sys.executable} has no NumPy, which every Python subject needs: install it there")

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

MAGIC = b"GATE"
PREFIX = struct.Struct("<4sI")
HEADER_LIMIT = 1 << 20  # bytes of JSON
PAYLOAD_LIMIT = 4 << 30  # bytes of buffers: above any case, below a runaway length
ERROR_LIMIT = 2000  # characters of an error message that cross the wire
DTYPES = frozenset(("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", "bfloat16"))


class FrameError(ValueError):
    """The bytes on the pipe are no frame."""


# ---------------------------------------------------------------- frames


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
    """Return the header and the byte size of each buffer that follows; nothing is allocated before this check."""
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
        raise FrameError(f"an array of dtype {array.dtype} does not cross the wire")
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
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, dict):
        if bad := [key for key in value if not isinstance(key, str) or key.startswith("$")]:
            raise FrameError(f"keys {bad} do not cross the wire: they must be text that does not start with '$'")
        return {key: _lower(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lower(item, arrays) for item in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        arrays.append(np.asarray(value))
        return {"$array": len(arrays) - 1}
    raise FrameError(f"a {type(value).__name__} does not cross the wire")


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


# ---------------------------------------------------------------- pipes


def _fill(stream: io.FileIO, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    done = 0
    while done < size:
        count = stream.readinto(data[done:])
        if not count:
            raise EOFError
        done += count
    return data


def _read(stream: io.FileIO) -> Any:
    size = header_size(bytes(_fill(stream, PREFIX.size)))
    header, sizes = parse_header(bytes(_fill(stream, size)))
    return decode(header, _fill(stream, sum(sizes)))


def _write(stream: io.FileIO, tree: Any) -> None:
    for part in encode(tree):
        view = memoryview(part)
        while view:
            view = view[stream.write(view) :]


def _listen(stream: io.FileIO, inbox: queue.SimpleQueue[Any]) -> None:
    """Pass requests on. The end of the pipe means that the judge is gone: leave at once, even in the middle of a call."""
    try:
        while True:
            inbox.put(_read(stream))
    except EOFError:
        os._exit(0)
    except Exception as error:
        sys.stderr.write(f"worker: {error}\n")
        os._exit(70)


# ---------------------------------------------------------------- the subject


def rebuild(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """Return the same values in another memory layout."""
    if layout == "strided":
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "misaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)
        view: np.ndarray[Any, Any] = raw[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    if layout == "0-d":
        return array.reshape(())
    if layout == "read-only":
        copy = array.copy()
        copy.flags.writeable = False
        return copy
    if layout == "bfloat16":  # the wire widens it to float32, which holds its values exactly
        try:
            narrow = importlib.import_module("ml_dtypes").bfloat16
        except ModuleNotFoundError:
            raise NotImplementedError(
                "NumPy has no bfloat16 without the package ml_dtypes, which is not here"
            ) from None
        return array.astype(narrow)
    raise ValueError(f"layout {layout!r} must be strided, read-only, big-endian, misaligned, bfloat16 or 0-d")


def _load(name: str, path: str, settings: Mapping[str, Any]) -> ModuleType:
    """Load a subject's file under its dotted name, whether or not that package exists in this interpreter."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["SETTINGS"] = dict(settings)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _find(reference: str) -> tuple[Any, str]:
    module, _, path = reference.partition(":")
    owner: Any = importlib.import_module(module) if module not in sys.modules else sys.modules[module]
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


class Planted:
    """A seam with a mistake in it, and how often it ran."""

    def __init__(self, target: str, patch: str) -> None:
        self.calls = 0
        owner, name = _find(target)
        maker, factory = _find(patch)
        original = getattr(owner, name)
        mistaken = getattr(maker, factory)(original)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return mistaken(*args, **kwargs)

        setattr(owner, name, counted)


def _preload(library: str) -> str:
    """Load a shared library before everything else, for its symbols to win, and return what it says of itself."""
    loaded = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    if not hasattr(loaded, "openblas_get_config"):
        return library
    loaded.openblas_get_config.restype = ctypes.c_char_p
    return f"{library} ({loaded.openblas_get_config().decode(errors='replace').strip()})"


def _open(start: Mapping[str, Any]) -> tuple[ModuleType, Planted | None]:
    mutant, planted = start.get("mutant"), None
    own = mutant is not None and mutant["target"].partition(":")[0] == start["module"]
    if mutant is not None and not own:
        planted = Planted(**mutant)
    module = _load(start["module"], start["entry"], start["settings"])
    if mutant is not None and own:  # the seam is in the subject's own file: it exists only now
        planted = Planted(**mutant)
    return module, planted


def _operations(module: ModuleType) -> dict[str, Callable[..., Any]]:
    operations: Any = getattr(module, "OPS", None)
    if not isinstance(operations, dict) or not all(callable(op) for op in operations.values()):
        raise TypeError(f"{module.__name__} must define OPS, a dict from the name of an op to a function")
    if not all(isinstance(name, str) for name in operations):
        raise TypeError(f"the keys of OPS are {list(operations)}, must be names of ops")
    own: dict[str, Callable[..., Any]] = {}
    for name, op in operations.items():
        inside = getattr(op, "__module__", "") == module.__name__
        found: Any = getattr(module, getattr(op, "__name__", ""), op) if inside else op
        own[name] = found  # the planted one, if there is one
    return own


def _conventions(module: ModuleType, operations: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """Return what CONVENTIONS says; a text where choices should be would read as its letters, and nothing be judged."""
    found: dict[str, dict[str, list[Any]]] = {}
    for op, conventions in dict(getattr(module, "CONVENTIONS", {})).items():
        if op not in operations:
            raise TypeError(f"CONVENTIONS names {op!r}, which OPS does not define")
        found[op] = {}
        for name, choices in dict(conventions).items():
            if not isinstance(choices, list | tuple | set | frozenset):
                raise TypeError(f"CONVENTIONS[{op!r}][{name!r}] is {choices!r}, must be a tuple of the choices")
            found[op][name] = list(choices)
    return found


def _hello(module: ModuleType, operations: Mapping[str, Any], preloaded: list[str]) -> dict[str, Any]:
    conventions = _conventions(module, operations)
    return {
        "kind": "ready",
        "provides": {name: conventions.get(name, {}) for name in operations},
        "documented": dict(getattr(module, "DEPARTURES_DOCUMENTED", {})),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            **({"preloaded": ", ".join(preloaded)} if preloaded else {}),
            **{key: str(value) for key, value in getattr(module, "VERSIONS", {}).items()},
        },
    }


def _answer(operation: Callable[..., Any] | None, request: Mapping[str, Any]) -> dict[str, Any]:
    if operation is None:
        return {"kind": "unsupported", "error": f"{request['op']} is not defined by this subject"}
    layout = request["layout"]
    try:
        inputs = {
            name: rebuild(value, layout[name]) if name in layout else value for name, value in request["inputs"].items()
        }
    except NotImplementedError as error:
        return {"kind": "unsupported", "error": str(error)}
    return _run(request["op"], operation, inputs)


def _run(name: str, operation: Callable[..., Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what came of one call. The inputs belong to the caller: a subject that writes into them has raised."""
    before = {key: value.tobytes() for key, value in inputs.items() if isinstance(value, np.ndarray)}
    start = time.perf_counter()
    try:
        value = operation(**inputs)
        seconds = time.perf_counter() - start
        if not isinstance(value, dict):
            return {"kind": "raised", "error": f"{name} returned a {type(value).__name__}, must be a dict"}
        encode(value)  # what cannot cross the wire is the subject's error, not the worker's end
    except NotImplementedError as error:
        return {"kind": "unsupported", "error": _words(error)}
    except BaseException as error:  # a subject may raise anything, SystemExit and Rust panics included
        return {"kind": "raised", "error": _words(error)}
    if changed := [key for key, data in before.items() if inputs[key].tobytes() != data]:
        return {"kind": "raised", "error": f"{name} changed its input {', '.join(changed)} in place"}
    return {"kind": "value", "value": value, "seconds": seconds}


def _words(error: BaseException) -> str:
    """Return what an exception says, whose own words may raise too."""
    try:
        words = str(error)
    except BaseException:
        words = "(its text raises)"
    said_plainly = isinstance(error, NotImplementedError) and words
    return (words if said_plainly else f"{type(error).__name__}: {words}")[:ERROR_LIMIT]


def main() -> None:
    """Serve one subject until the judge closes the pipe."""
    parser = argparse.ArgumentParser(description="Serves one subject of Gates; started by the judge.")
    parser.add_argument("--read", type=int, required=True)
    parser.add_argument("--write", type=int, required=True)
    arguments = parser.parse_args()
    reader, writer = io.FileIO(arguments.read, "r"), io.FileIO(arguments.write, "w")
    os.dup2(2, 1)  # whatever a subject prints is no part of the protocol
    start = _read(reader)
    try:
        preloaded = [_preload(library) for library in start["preload"]]
        module, planted = _open(start)
        operations = _operations(module)
        _write(writer, _hello(module, operations, preloaded))
    except BaseException as error:
        absent = isinstance(error, ModuleNotFoundError | OSError)
        _write(writer, {"kind": "absent" if absent else "broken", "error": _words(error)})
        return
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(reader, inbox), daemon=True).start()
    while True:
        request = inbox.get()
        answer = _answer(operations.get(request["op"]), request)
        _write(writer, {**answer, "id": request["id"], "patched_calls": planted.calls if planted else 0})


if __name__ == "__main__":
    main()
