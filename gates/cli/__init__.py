"""The command line: `main` sets up signals and error handling, then imports the verbs of verbs.py."""

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
    """Run a command; a user's mistake prints one sentence and exits with 2, a fault of Gates exits with 4.

    SIGTERM, which CI sends, ends a command as Ctrl-C does, with the same exit code: what was judged is kept, and the run
    can be resumed. SIGINT is set too, because a shell starts background jobs with SIGINT ignored.
    """
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        try:
            from gates.cli.streams import replace_standard_streams
            from gates.cli.verbs import app

            replace_standard_streams()
            app()
        finally:
            _flush()
    except (
        KeyboardInterrupt
    ):  # raised while the verbs were imported, so nothing is open; a running verb catches its own
        _leave()
    except Exception as error:  # noqa: BLE001  every error ends with a documented exit code
        _report(error)
    finally:
        for number in SIGNALS:  # an exception while Python shuts down would only be printed
            signal.signal(number, _leave)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, exit at once, because an interrupted import may fail in any way.

    Nothing is lost: lines of results are written unbuffered, and a worker ends when the judge's pipe closes.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt(number)


def _leave(*_: object) -> NoReturn:
    """Report the interruption and exit without Python's shutdown.

    The shutdown would change the exit code if Ctrl-C came in an `eval`, such as typer's of annotations.
    """
    os.write(2, f"{NAME}: interrupted\n".encode())
    os._exit(ExitCode.INTERRUPTED)


def _flush() -> None:
    """Flush standard output while a full disk can still be reported."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _report(error: Exception) -> None:
    """Print an error as one sentence and exit with its code; only a mistake in Gates has a traceback."""
    from gates.errors import ConfigurationError, FaultError, sentence

    if isinstance(error, ConfigurationError):
        _end(str(error), ExitCode.USAGE)
    if isinstance(error, FaultError):
        _end(str(error), ExitCode.FAULT)
    if isinstance(error, MemoryError):
        _end("out of memory; free some, or run fewer workers (--jobs 1)", ExitCode.FAULT)
    if isinstance(error, OSError) and error.errno is not None:
        path = error.filename if isinstance(error.filename, str) else "the output"
        _end(sentence(f"cannot read or write {path}", error), ExitCode.FAULT)
    import traceback

    traceback.print_exception(error)
    _end(
        f"unexpected {type(error).__name__}, and no verdict on a subject; please report it, unless it is of code of yours",
        ExitCode.FAULT,
    )


def _end(message: str, code: ExitCode) -> NoReturn:
    """Print one sentence on standard error and exit, even if neither stream can be written to."""
    with contextlib.suppress(OSError):
        from gates.results.escape import visible

        message = visible(message)
    with contextlib.suppress(OSError, SystemExit):  # of a pipe that nobody reads
        sys.stderr.write(f"{NAME}: {message}\n")
        sys.stderr.flush()
    try:
        _flush()
    except OSError:
        os._exit(code)  # Python would flush again at its end, fail again, and exit with 120
    sys.exit(code)
