"""Files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gates.model import ConfigurationError


def write_whole(path: Path, text: str) -> None:
    """Replace a file's text in one step, whatever kills the process meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
