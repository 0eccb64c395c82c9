"""One process for each pass of a target: it gets a job, trains in its own interpreter, and sends the times of steps."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benches.trainers import blas

WORKERS: Final = Path(__file__).with_name("workers")
THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
QUIET: Final = {
    "HF_HUB_OFFLINE": "1",  # no downloads
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}
SILENCE_S: Final = 300.0  # silence after which a process is ended
ERRORS: Final = 4000  # characters of standard error searched for a reason


class TargetError(Exception):
    """A target's process failed; the message has the reason if known."""


def environment(threads: int, *, preload: bool) -> dict[str, str]:
    """Return the environment variables of a target's process: threads of every library, and the BLAS of MLX."""
    variables = {**os.environ, **dict.fromkeys(THREADS, str(threads)), **QUIET}
    variables.pop("LD_PRELOAD", None)
    if preload and (library := blas.chosen().preload):
        variables["LD_PRELOAD"] = library
    return variables


def messages(
    python: str,
    worker: str,
    job: Mapping[str, Any],
    *,
    threads: int,
    preload: bool = True,
    silence_s: float = SILENCE_S,
) -> Iterator[dict[str, Any]]:
    """Run a job in a new process and yield its messages up to `done`; the process ends with the iteration.

    Args:
        python: interpreter of the target's environment.
        worker: file in `workers/`.
        job: for `workers/process.py`; the temporary folder `scratch` is added.
        threads: for every library.
        preload: load the BLAS of the MLX targets first.
        silence_s: seconds without a message after which the process is ended.

    Raises:
        TargetError: the process fails, ends early or falls silent.
    """
    with tempfile.TemporaryDirectory(prefix="gates-bench-") as scratch, Path(scratch, "errors").open("w+") as errors:
        process = subprocess.Popen(
            [python, "-I", str(WORKERS / "process.py"), str(WORKERS / worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(threads, preload=preload),
            start_new_session=True,  # Ctrl-C reaches only this process, which ends the other
        )
        try:
            if process.stdin is None:
                raise TargetError("the process has no input")
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps({**job, "scratch": scratch}).encode() + b"\n")
                process.stdin.flush()
            yield from _received(process, errors, silence_s)
        finally:
            _end(process)


def _received(process: subprocess.Popen[bytes], errors: Any, silence_s: float) -> Iterator[dict[str, Any]]:
    for line in _lines(process, silence_s):
        message = json.loads(line)
        if message["event"] == "failed":
            raise TargetError(message["reason"])
        if message["event"] == "done":
            return
        yield message
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - ERRORS))
    last = [text for text in errors.read().splitlines() if text.strip()][-1:]
    raise TargetError(f"the process ended with status {process.wait()} before it was done: {' '.join(last)[:300]}")


def _lines(process: subprocess.Popen[bytes], silence_s: float) -> Iterator[bytes]:
    """Yield complete lines as they arrive."""
    if process.stdout is None:
        return
    held, descriptor = b"", process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(silence_s):
                raise TargetError(f"no message for {silence_s:g} s")
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *whole, held = (held + data).split(b"\n")
            yield from whole


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its descendants; a finished one gets a moment to exit by itself."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    until = time.monotonic() + (5.0 if sys.exc_info()[0] in {None, GeneratorExit} else 0.0)
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
