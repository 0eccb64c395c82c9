"""Files that people rely on: they appear whole or not at all, and numbers in them are never invalid JSON."""

import math
import os
from pathlib import Path


def number(value: float) -> float | str:
    """A float as JSON can hold it: "nan", "inf" and "-inf" are strings."""
    return value if math.isfinite(value) else str(value)


def sync(path: Path) -> None:
    """Make a file or the names in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, content: bytes) -> None:
    """Write a file as `.part`, sync it, and give it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync(path.parent)
