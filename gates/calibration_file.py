"""A calibration that was stopped goes on in its own file: what is there, and whether it is the same run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gates.model import ConfigurationError
from gates.report.jsonl import Results, Writer, read
from gates.report.records import HeaderRecord

SAME = ("verb", "seed", "seeds", "quick", "full", "gates", "subjects", "planned", "beside")


class Appender(Writer):
    """Appends to a results file that was cut; a torn last line is removed first, and nobody else may append meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise ConfigurationError(f"cannot go on with {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise ConfigurationError(f"cannot go on with {path}: another `gates calibrate` does so now") from None
        whole = path.read_bytes().rfind(b"\n") + 1
        os.ftruncate(self._fd, whole)


def resumed(path: Path, header: HeaderRecord) -> Results:
    """Return what a file holds of the run that is asked for.

    Raises:
        ConfigurationError: if it is another run; or, unless it is complete, one of another commit or machine, for then the
            seeds that are left would be of other gates than those that are there.
    """
    results = read(path)
    for name in SAME if results.summary else (*SAME, "commit"):
        old, new = getattr(results.header, name), getattr(header, name)
        if old != new:
            raise ConfigurationError(
                f"--resume {path}: its {name} is {_short(old)}, and this command's {_short(new)}; "
                "repeat the command of the file, or begin a new one"
            )
    if results.summary is None and results.header.machine.cpu != header.machine.cpu:
        raise ConfigurationError(
            f"--resume {path}: it began on {results.header.machine.cpu}, this is {header.machine.cpu}; begin a new file"
        )
    return results


def _short(value: object) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}…"
