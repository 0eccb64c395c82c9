"""Standard output and error: any encoding will do, and a command ends quietly once nobody reads them."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

from gates.errors import ExitCode

STREAMS = ("stdout", "stderr")


class Stream(io.TextIOWrapper):
    """A standard stream that ends the command where the program that read it has ended, as `head` does.

    A BrokenPipeError would not do: rich and typer turn it into exit code 1, by which a check says that a subject failed.
    """

    def write(self, text: str, /) -> int:
        """Write text."""
        try:
            return super().write(text)
        except BrokenPipeError:
            self._unread()

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            super().flush()
        except BrokenPipeError:
            self._unread()

    def _unread(self) -> NoReturn:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # Python flushes again at its end
        raise SystemExit(ExitCode.UNREAD) from None


def replace_standard_streams() -> None:
    """Replace both streams, unless a test has done so; a character that the encoding lacks is escaped."""
    for name in STREAMS:
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            stream.flush()
            lines = stream.line_buffering
            setattr(sys, name, Stream(stream.buffer, stream.encoding, "backslashreplace", line_buffering=lines))
