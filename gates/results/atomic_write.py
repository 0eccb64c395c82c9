"""Write files atomically: a reader finds the old text or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gates.model import ConfigurationError


def write_whole(path: Path, text: str | bytes | Iterable[str]) -> None:
    """Replace a file's content, given whole or in pieces, in one step that survives a kill at any moment."""
    _write(path, text, Path.replace)


def write_new(path: Path, text: str) -> None:
    """Write a new file in one step; one that exists is an error."""

    def link(made: Path, target: Path) -> None:
        target.hardlink_to(made)
        made.unlink()

    _write(path, text, link)


def _write(path: Path, text: str | bytes | Iterable[str], put: Callable[[Path, Path], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            if isinstance(text, bytes):
                file.write(text)
            else:
                file.writelines(piece.encode() for piece in ([text] if isinstance(text, str) else text))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        put(Path(name), path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
