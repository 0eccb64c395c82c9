"""Append-only files of JSON lines that survive a kill at any byte: on resume they are cut to the checkpoint's length."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates_reference.trainer import storage
from gates_reference.trainer.checkpoint.layout import CheckpointError


class Lines:
    """An append-only file; each line is one write."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, content: Mapping[str, Any]) -> None:
        """Append one line."""
        os.write(self._handle, storage.encoded(content) + b"\n")

    def length(self) -> int:
        """Flush the file to the disk and return its length in bytes."""
        os.fsync(self._handle)
        return os.fstat(self._handle).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def cut(path: Path, length: int) -> None:
    """Cut a file to the length that a checkpoint recorded: the steps of later lines will be repeated.

    Raises:
        CheckpointError: the file is shorter, so lines are missing.
    """
    size = path.stat().st_size if path.exists() else 0
    if size < length:
        raise CheckpointError(
            f"{path}: has {size} bytes, the checkpoint was written when it had {length}; was it changed?"
        )
    if size > length:
        os.truncate(path, length)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a file; a torn last line is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.split(b"\n") if line]
