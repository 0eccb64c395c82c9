"""The pipes to and from a worker, and the file for its output."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from typing import Any

from gates.errors import FaultError, sentence

CHUNK = 1 << 20  # bytes per read: the largest pipe that Linux grants without privilege


def opened(name: str) -> tuple[Any, tuple[int, int], tuple[int, int]]:
    """Return the file for the output of a subject's worker, and two pipes.

    Raises:
        FaultError: this process has too many open files, or the folder of temporary files is full.
    """
    with contextlib.ExitStack() as stack:
        try:
            log = stack.enter_context(tempfile.TemporaryFile())
            pipes = [os.pipe() for _ in range(2)]
        except OSError as error:
            where = f", whose output goes to {tempfile.gettempdir()}" if error.errno != errno.EMFILE else ""
            raise FaultError(sentence(f"cannot start {name}{where}", error)) from None
        stack.pop_all()
    _append_only(log.fileno())
    return log, pipes[0], pipes[1]


def _append_only(fd: int) -> None:
    """Open the log in append mode, so that it stays short after it was truncated."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)


def widen(pipe: int) -> None:
    """Enlarge a pipe to a whole chunk if possible, since recorded logits are tens of megabytes."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # beyond the user's quota the pipe is only slower
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK)
