"""Write files atomically: a reader finds the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gates.errors import unwritable

LINKLESS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)  # of a file system without hard links


def write_whole(path: Path, text: str | bytes | Iterable[str]) -> None:
    """Replace a file's content, given whole or in pieces, in one step that survives a kill at any moment."""
    _write(path, text, Path.replace)


def write_new(path: Path, text: str) -> None:
    """Write a new file in one step; one that exists is an error."""

    def link(made: Path, target: Path) -> None:
        try:
            target.hardlink_to(made)
        except OSError as error:
            if error.errno not in LINKLESS:
                raise
            target.touch(exist_ok=False)
            made.replace(target)
        else:
            made.unlink()

    _write(path, text, link)


def _write(path: Path, text: str | bytes | Iterable[str], put: Callable[[Path, Path], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise unwritable(path, error) from None
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
        with contextlib.suppress(OSError):
            Path(name).unlink(missing_ok=True)
        raise unwritable(path, error, begun=True) from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
