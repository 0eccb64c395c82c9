"""Files that people rely on: they appear whole or not at all, and numbers in them are never invalid JSON."""

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def number(value: float) -> float | str:
    """A float as JSON can hold it: "nan", "inf" and "-inf" are strings."""
    return value if math.isfinite(value) else str(value)


def plain(value: Any) -> Any:
    """A value as JSON can hold it, non-finite numbers as strings; what is neither a table nor a list nor a float stays."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return number(value) if isinstance(value, float) else value


def encoded(content: Any, *, indent: int | None = None) -> bytes:
    r"""Any data as JSON in UTF-8 that every reader reads.

    Data sets hold what JSON cannot: a Decimal, a date or bytes is the text that Python shows of it. Half of a surrogate pair,
    which UTF-8 cannot hold and strict readers refuse as an escape too, is the six characters `\ud800` themselves.
    """
    text = json.dumps(plain(content), indent=indent, allow_nan=False, ensure_ascii=False, default=repr)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", text).encode()


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
