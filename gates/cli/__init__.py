"""The command line: `main` sees to signals and errors, and then imports the verbs of verbs.py."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from gates.errors import ExitCode

IMPORTING = "<frozen importlib"  # the file of Python's own frames while a module is loaded
NAME = "gates"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    """Run a command. A user's mistake is one sentence and exit code 2, a fault of ours 4; the first has no traceback.

    SIGTERM, which CI sends, ends a command as Ctrl-C does, with the same exit code: what was judged is kept, and the run
    can be resumed. SIGINT is set too, for the background job of a script is started with it ignored.
    """
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        try:
            from gates.cli.verbs import app

            _any_encoding()
            app()
        finally:
            _flush()
    except KeyboardInterrupt:  # while the verbs were built, so nothing is open; a verb catches its own
        _leave()
    except Exception as error:  # noqa: BLE001  whatever it is, it has one of our exit codes
        _report(error)
    finally:
        for number in SIGNALS:  # while Python ends: an exception in its own threads would be shown and lost
            signal.signal(number, _leave)


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once while a module is loaded, for an interrupted import may go on or fail in any way; else raise.

    Nothing is lost: lines of results are written unbuffered, and a worker ends when the judge's pipe closes.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt(number)


def _leave(*_: object) -> NoReturn:
    """Say that the command was interrupted, and end without what Python does at its end.

    It would raise SIGINT again if Ctrl-C came in an `eval`, such as typer's of annotations, and change the exit code.
    """
    os.write(2, f"{NAME}: interrupted\n".encode())
    os._exit(ExitCode.INTERRUPTED)


def _any_encoding() -> None:
    """Write what the terminal's encoding lacks as an escape: a run must not end at a minus sign."""
    import io

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Write what is buffered while a full disk can still be reported."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _report(error: Exception) -> None:
    """Print an error as a sentence, with a traceback where it is a mistake in Gates, and end with its code."""
    from gates.errors import ConfigurationError, FaultError, sentence

    if isinstance(error, BrokenPipeError):
        os._exit(ExitCode.FAULT)  # the program that read the output has ended, as `head` does
    if isinstance(error, ConfigurationError):
        _end(str(error), ExitCode.USAGE)
    if isinstance(error, FaultError):
        _end(str(error), ExitCode.FAULT)
    if isinstance(error, MemoryError):
        _end("out of memory; free some, or run fewer workers (--jobs 1)", ExitCode.FAULT)
    if isinstance(error, OSError) and error.errno is not None:
        place = error.filename if isinstance(error.filename, str) else "the output"
        _end(sentence(f"cannot read or write {place}", error), ExitCode.FAULT)
    import traceback

    traceback.print_exception(error)
    _end(
        f"unexpected {type(error).__name__}, and no verdict on a subject; please report it, unless it is of code of yours",
        ExitCode.FAULT,
    )


def _end(words: str, code: ExitCode) -> NoReturn:
    """Print one sentence on standard error and leave, even if neither stream can be written to."""
    with contextlib.suppress(OSError):
        from gates.results.escape import visible

        words = visible(words)
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{NAME}: {words}\n")
        sys.stderr.flush()
    try:
        _flush()
    except OSError:
        os._exit(code)  # Python would flush again at its end, fail again, and exit with 120
    sys.exit(code)
