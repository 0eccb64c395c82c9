"""Serve one subject in a process of its own (docs/protocol.md); standard library and NumPy only.

The judge runs this file by path with `python -I` in the subject's interpreter, so that the judge's environment does not
shadow the subject's. frames.py and declarations.py are loaded by path too.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import functools
import importlib
import importlib.util
import io
import json
import os
import platform
import queue
import sys
import threading
import time
from pathlib import Path
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

    from gates.worker import declarations, frames


def _beside(name: str) -> ModuleType:
    """Load a file of this folder by path: `-I` hides the folder, and Gates may not be installed in this interpreter."""
    spec = importlib.util.spec_from_file_location(f"gates_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside {__file__}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    declarations, frames = _beside("declarations"), _beside("frames")

READ_AHEAD = 1 << 16  # bytes: a small request is read by one system call instead of three
SCARCE = (  # messages of exceptions for scarce resources; the last is from resource.setrlimit
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    "not allowed to raise maximum limit",
)
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
OURS = ("gates", "gates_reference")  # packages of Gates

# ---------------------------------------------------------------- pipes


def _fill(stream: io.BufferedReader[io.FileIO], size: int) -> memoryview:
    data = memoryview(bytearray(size))
    done = 0
    while done < size:
        count = stream.readinto(data[done:])
        if not count:
            raise EOFError
        done += count
    return data


def _read(stream: io.BufferedReader[io.FileIO]) -> Any:
    size = frames.header_size(bytes(_fill(stream, frames.PREFIX.size)))
    header, sizes = frames.parse_header(bytes(_fill(stream, size)))
    return frames.decode(header, _fill(stream, sum(sizes)))


def _write(pipe: int, tree: Any) -> None:
    parts = [memoryview(part) for part in frames.encode(tree)]
    while parts:
        frames.drop(parts, os.writev(pipe, frames.batch(parts)))


def _listen(stream: io.BufferedReader[io.FileIO], inbox: queue.SimpleQueue[Any]) -> None:
    """Queue requests; at the end of the pipe the judge is gone, so exit at once, even in the middle of a call."""
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


def _find(reference: str) -> tuple[Any, str]:
    module, _, path = reference.partition(":")
    owner: Any = importlib.import_module(module) if module not in sys.modules else sys.modules[module]
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


class Applied:
    """A mutation in effect: its target is replaced by the patched function, whose calls are counted."""

    def __init__(self, target: str, patch: str) -> None:
        self.calls = 0
        owner, name = _find(target)
        maker, factory = _find(patch)
        original = getattr(owner, name)
        mutated = getattr(maker, factory)(original)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return mutated(*args, **kwargs)

        setattr(owner, name, counted)


class PreloadError(Exception):
    """A library required by this subject is not installed."""


def _preload(library: str) -> str:
    """Load a shared library first, so that its symbols take precedence, and return its path and configuration."""
    try:
        loaded = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise PreloadError(str(error)) from None
    if not hasattr(loaded, "openblas_get_config"):
        return library
    loaded.openblas_get_config.restype = ctypes.c_char_p
    return f"{library} ({loaded.openblas_get_config().decode(errors='replace').strip()})"


def _record(path: str, asked: Mapping[str, Any]) -> None:
    """Start the recorder of `gates xray`, as its sitecustomize.py does where PYTHONPATH is read."""
    os.environ["GATES_XRAY"] = json.dumps(dict(asked))
    sys.path.insert(0, path)
    spec = importlib.util.spec_from_file_location("gates_sitecustomize", Path(path, "sitecustomize.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} has no recorder")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _open(start: Mapping[str, Any]) -> tuple[ModuleType, Applied | None]:
    if start.get("recorder"):
        _record(**start["recorder"])
    mutant, applied = start.get("mutant"), None
    own = mutant is not None and mutant["target"].partition(":")[0] == start["module"]
    if mutant is not None and not own:
        applied = Applied(**mutant)
    module = declarations.load(start["module"], start["entry"], start["settings"])
    if mutant is not None and own:  # the target is in the subject's own file, which is loaded only now
        applied = Applied(**mutant)
    return module, applied


def _hello(module: ModuleType, operations: Mapping[str, Any], preloaded: list[str]) -> dict[str, Any]:
    conventions, table = declarations.conventions(module, operations), declarations.table
    return {
        "kind": "ready",
        "provides": {name: conventions.get(name, {}) for name in operations},
        "arguments": {name: declarations.arguments(function) for name, function in operations.items()},
        "locations": {name: declarations.location(function) for name, function in operations.items()},
        "documented": dict(table(module, "DEPARTURES_DOCUMENTED")),
        "code": _code(),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            **({"preloaded": ", ".join(preloaded)} if preloaded else {}),
            **{key: str(value) for key, value in table(module, "VERSIONS").items()},
        },
    }


def _code() -> dict[str, str]:
    """Return the folders of the imported packages of Gates, which the judge compares with its own."""
    loaded = {name: getattr(sys.modules.get(name), "__path__", ()) for name in OURS}
    return {name: str(Path(folder).resolve()) for name, folders in loaded.items() for folder in [*folders][:1]}


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
    """Return the outcome of one call; changing the inputs in place is an error."""
    before = {key: value.tobytes() for key, value in inputs.items() if isinstance(value, np.ndarray)}
    start = time.perf_counter()
    try:
        value = operation(**inputs)
        seconds = time.perf_counter() - start
        if not isinstance(value, dict):
            return {"kind": "raised", "error": f"{name} returned {_type(value)}, must be a dict of its outputs"}
        try:
            frames.encode(value)  # a value that cannot be sent is an error of the subject and must not end the worker
        except frames.FrameError as error:
            return {"kind": "raised", "error": f"{name} returned a dict that cannot be passed on: {error}"}
    except NotImplementedError as error:
        return {"kind": "unsupported", "error": _words(error)}
    except BaseException as error:  # a subject may raise anything, SystemExit and Rust panics included
        return {"kind": "raised", "error": _words(error)}
    if changed := [key for key, data in before.items() if inputs[key].tobytes() != data]:
        return {"kind": "raised", "error": f"{name} changed its input {', '.join(changed)} in place"}
    return {"kind": "value", "value": value, "seconds": seconds}


def _type(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _words(error: BaseException) -> str:
    """Return the message of an exception, whose `__str__` may raise too."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text raises)"
    name = type(error).__name__
    if isinstance(error, declarations.UsageError):
        return text[: frames.ERROR_LIMIT]
    if isinstance(error, NotImplementedError):
        return (text or f"{name} without a reason")[: frames.ERROR_LIMIT]
    where = _place(error)
    return (f"{name}: {text}" if text else name)[: frames.ERROR_LIMIT - len(where)] + where


def _place(error: BaseException) -> str:
    """Return where outside the worker an exception was raised, such as ` (loss.py:41, in clipped)`, or ""."""
    trace, location = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if Path(code.co_filename).parent != Path(__file__).parent and not code.co_filename.startswith("<"):
            location = f" ({Path(code.co_filename).name}:{trace.tb_lineno}, in {code.co_name})"
        trace = trace.tb_next
    return location[:300]


def _kind(error: BaseException, start: Mapping[str, Any]) -> str:
    """Return why a subject did not start: `usage`, a dependency is `absent`, resources are `scarce`, or it is `broken`.

    A subject that cannot run here raises NotImplementedError. A missing module is absent only if no part of it is here:
    `mylib.sub` without `mylib`, and no such file in the subject's folder.
    """
    if isinstance(error, declarations.UsageError):
        return "usage"
    if isinstance(error, OSError | ImportError | ValueError) and any(phrase in str(error) for phrase in SCARCE):
        return "scarce"
    if isinstance(error, NotImplementedError | PreloadError):
        return "absent"
    return "absent" if isinstance(error, ModuleNotFoundError) and not _partly_here(error.name, start) else "broken"


def _partly_here(module: str | None, start: Mapping[str, Any]) -> bool:
    """Return whether a missing module belongs to an installed package or lies in the subject's folder."""
    if not module:
        return False
    top, entry = module.partition(".")[0], Path(start["entry"])
    shipped = start["module"].startswith("gates.")  # its folder has subjects named after other libraries
    beside = [entry.parent / top, entry.parent / f"{top}.py"]
    if not shipped and any(path.exists() and path != entry for path in beside):
        return True
    return top != module and importlib.util.find_spec(top) is not None


def _adopt_orphans() -> None:
    """Adopt orphaned descendants, so that the judge finds them; only Linux offers this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> None:
    """Serve one subject until the judge closes the pipe."""
    parser = argparse.ArgumentParser(description="Serves one subject of Gates; started by the judge.")
    parser.add_argument("--read", type=int, required=True)
    parser.add_argument("--write", type=int, required=True)
    arguments = parser.parse_args()
    _adopt_orphans()
    reader, writer = io.BufferedReader(io.FileIO(arguments.read, "r"), READ_AHEAD), arguments.write
    os.dup2(2, 1)  # the subject's prints must not reach the protocol's pipe
    start = _read(reader)
    try:
        preloaded = [_preload(library) for library in start["preload"]]
        module, applied = _open(start)
        operations = declarations.operations(module)
        _write(writer, _hello(module, operations, preloaded))
    except BaseException as error:
        _write(writer, {"kind": _kind(error, start), "error": _words(error)})
        return
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(reader, inbox), daemon=True).start()
    while True:
        request = inbox.get()
        answer = _answer(operations.get(request["op"]), request)
        _write(writer, {**answer, "id": request["id"], "patched_calls": applied.calls if applied else 0})


if __name__ == "__main__":
    main()
