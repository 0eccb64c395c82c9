"""Write files atomically: a reader finds the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gates.errors import unwritable

LINKLESS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)  # errors of file systems without hard links


def write_whole(path: Path, text: str | bytes | Iterable[str]) -> None:
    """Replace a file's content in one step that survives a kill at any moment."""
    _write(path, text, Path.replace)


def write_new(path: Path, text: str) -> None:
    """Write a new file in one step; an existing file is an error."""

    def link(temporary: Path, target: Path) -> None:
        try:
            target.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in LINKLESS:
                raise
            target.touch(exist_ok=False)
            temporary.replace(target)
        else:
            temporary.unlink()

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
